"""Products of bfloat16 numbers, two at a time, added to float32 sums: the instruction of x86 (``vdpbf16ps``) or of Arm
(``bfdot``), or what that of x86 computes.

A function takes vectors of n float32 sums s and of n 32-bit words a and w, each of two bfloat16 numbers, the first of
them in the low half, and gives s[i] + a[i][1] * w[i][1] + a[i][0] * w[i][0], added in this order (Intel SDM, volume 2,
VDPBF16PS); Arm's adds the two products to each other first, rounded to odd (Arm ARM, BFDOT). Products of two bfloat16
numbers are exact in float32. The instructions take numbers below the smallest normal one for zero, and give zero for
results of this size; the same in ordinary instructions does not.

The text is LLVM's: TVM makes float32 of all bfloat16 operands, so it has no value of the type that the intrinsic takes.
"""

from __future__ import annotations

from collections.abc import Collection

# lanes: the features that an instruction of this width needs, in LLVM's spelling
_X86_WIDTHS = {16: ("avx512bf16",), 8: ("avx512bf16", "avx512vl"), 4: ("avx512bf16", "avx512vl")}
_NEON, _ARM = 4, ("bf16", "neon")
_PREFIX = "gsb_bf16_pair_dot_x"


def function_name(lanes: int) -> str:
    """Name of the function for ``lanes`` sums."""
    return f"{_PREFIX}{lanes}"


def lanes_of(name: str) -> int | None:
    """The sums of a function by its name; None for the name of another function."""
    return int(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def llvm_text(lanes: int, features: Collection[str], sve: int = 0, name: str = "") -> str:
    """LLVM text of the function for ``lanes`` sums on a CPU with these features (LLVM's names); calls are inlined.

    sve: bytes of a scalable vector that the code may count on, 0 where it is to have none. name: another than
    `function_name` gives.
    """
    name = name or function_name(lanes)
    if lanes in _X86_WIDTHS and set(_X86_WIDTHS[lanes]) <= set(features):
        bf16, intrinsic = f"<{2 * lanes} x bfloat>", f"@llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return _function(name, lanes, *_instruction(intrinsic, _float(lanes), bf16, lanes))
    if set(_ARM) <= set(features):
        if lanes == _NEON:
            intrinsic = "@llvm.aarch64.neon.bfdot.v4f32.v8bf16"
            return _function(name, lanes, *_instruction(intrinsic, _float(lanes), "<8 x bfloat>", lanes))
        if 4 * lanes == sve:
            return _function(name, lanes, *_scalable(lanes))
    return _function(name, lanes, [], _in_words(lanes))


def _float(lanes: int) -> str:
    return "float" if lanes == 1 else f"<{lanes} x float>"


def _words(lanes: int) -> str:
    return "i32" if lanes == 1 else f"<{lanes} x i32>"


def _function(name: str, lanes: int, declared: list[str], lines: list[str]) -> str:
    f32, i32 = _float(lanes), _words(lanes)
    return "\n".join(
        [
            *declared,
            f"define linkonce_odr hidden {f32} @{name}({f32} %s, {i32} %a, {i32} %w) alwaysinline nounwind {{",
            *(f"  {line}" for line in lines),
            "}",
            "",
        ]
    )


def _instruction(intrinsic: str, f32: str, bf16: str, lanes: int) -> tuple[list[str], list[str]]:
    return [f"declare {f32} {intrinsic}({f32}, {bf16}, {bf16})"], [
        f"%x = bitcast {_words(lanes)} %a to {bf16}",
        f"%y = bitcast {_words(lanes)} %w to {bf16}",
        f"%r = call {f32} {intrinsic}({f32} %s, {bf16} %x, {bf16} %y)",
        f"ret {f32} %r",
    ]


def _scalable(lanes: int) -> tuple[list[str], list[str]]:
    """The instruction on vectors whose length is unknown by their type: LLVM knows that it is that of the others, and
    has no vectors of bfloat16 of a fixed length beyond 128 bits.
    """
    f32, i32, wide, wide_i32, bf16 = (
        *(_float(lanes), _words(lanes)),
        *("<vscale x 4 x float>", "<vscale x 4 x i32>", "<vscale x 8 x bfloat>"),
    )
    put, take = "@llvm.vector.insert.nxv4", f"@llvm.vector.extract.v{lanes}f32.nxv4f32"
    dot = "@llvm.aarch64.sve.bfdot"
    declared = [
        f"declare {wide} {put}f32.v{lanes}f32({wide}, {f32}, i64 immarg)",
        f"declare {wide_i32} {put}i32.v{lanes}i32({wide_i32}, {i32}, i64 immarg)",
        f"declare {f32} {take}({wide}, i64 immarg)",
        f"declare {wide} {dot}({wide}, {bf16}, {bf16})",
    ]
    return declared, [
        f"%s.v = call {wide} {put}f32.v{lanes}f32({wide} poison, {f32} %s, i64 0)",
        *(f"%{x}.v = call {wide_i32} {put}i32.v{lanes}i32({wide_i32} poison, {i32} %{x}, i64 0)" for x in "aw"),
        *(f"%{x}.b = bitcast {wide_i32} %{x}.v to {bf16}" for x in "aw"),
        f"%r.v = call {wide} {dot}({wide} %s.v, {bf16} %a.b, {bf16} %w.b)",
        f"%r = call {f32} {take}({wide} %r.v, i64 0)",
        f"ret {f32} %r",
    ]


def _in_words(lanes: int) -> list[str]:
    f32, i32 = _float(lanes), _words(lanes)
    half, low = (str(n) if lanes == 1 else f"<{', '.join([f'i32 {n}'] * lanes)}>" for n in (16, -65536))
    return [
        # the upper half of a float32 is a bfloat16
        *(
            f"%{x}_{at} = {operation} {i32} %{x}, {by}"
            for x in "aw"
            for at, operation, by in ((1, "and", low), (0, "shl", half))
        ),
        *(f"%{x}f_{at} = bitcast {i32} %{x}_{at} to {f32}" for x in "aw" for at in (0, 1)),
        f"%p_1 = fmul contract {f32} %af_1, %wf_1",
        f"%s_1 = fadd contract {f32} %s, %p_1",
        f"%p_0 = fmul contract {f32} %af_0, %wf_0",
        f"%s_0 = fadd contract {f32} %s_1, %p_0",
        f"ret {f32} %s_0",
    ]
