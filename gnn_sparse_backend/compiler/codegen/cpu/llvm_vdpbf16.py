"""Products of bfloat16 numbers, two at a time, added to float32 sums: the instruction ``vdpbf16ps``, or what it
computes.

A function takes vectors of n float32 sums s and of n 32-bit words a and w, each of two bfloat16 numbers, the first of
them in the low half, and gives s[i] + a[i][1] * w[i][1] + a[i][0] * w[i][0], added in this order (Intel SDM, volume 2,
VDPBF16PS). Products of two bfloat16 numbers are exact in float32. The instruction takes numbers below the smallest
normal one for zero, and gives zero for results of this size; the same in ordinary instructions does not.

The text is LLVM's: TVM makes float32 of all bfloat16 operands, so it has no value of the type that the intrinsic takes.
"""

from __future__ import annotations

# lanes: the features that an instruction of this width needs, in LLVM's spelling
_WIDTHS = {16: ("avx512bf16",), 8: ("avx512bf16", "avx512vl"), 4: ("avx512bf16", "avx512vl")}
_PREFIX = "gsb_bf16_pair_dot_x"


def function_name(lanes: int) -> str:
    """Name of the function for ``lanes`` sums."""
    return f"{_PREFIX}{lanes}"


def lanes_of(name: str) -> int | None:
    """The sums of a function by its name; None for the name of another function."""
    return int(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def llvm_text(lanes: int, features: frozenset[str] | set[str]) -> str:
    """LLVM text of the function for ``lanes`` sums on a CPU with these features (LLVM's names); calls are inlined."""
    f32, i32 = (kind if lanes == 1 else f"<{lanes} x {kind}>" for kind in ("float", "i32"))
    head = (
        f"define linkonce_odr hidden {f32} @{function_name(lanes)}({f32} %s, {i32} %a, {i32} %w) "
        "alwaysinline nounwind {"
    )
    if lanes in _WIDTHS and features.issuperset(_WIDTHS[lanes]):
        bf16 = f"<{2 * lanes} x bfloat>"
        intrinsic = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return "\n".join(
            [
                f"declare {f32} {intrinsic}({f32}, {bf16}, {bf16})",
                head,
                f"  %x = bitcast {i32} %a to {bf16}",
                f"  %y = bitcast {i32} %w to {bf16}",
                f"  %r = call {f32} {intrinsic}({f32} %s, {bf16} %x, {bf16} %y)",
                f"  ret {f32} %r",
                "}",
                "",
            ]
        )
    half, low = (str(n) if lanes == 1 else f"<{', '.join([f'i32 {n}'] * lanes)}>" for n in (16, -65536))
    return "\n".join(
        [
            head,
            # the upper half of a float32 is a bfloat16
            *(
                f"  %{x}_{at} = {operation} {i32} %{x}, {by}"
                for x in "aw"
                for at, operation, by in ((1, "and", low), (0, "shl", half))
            ),
            *(f"  %{x}f_{at} = bitcast {i32} %{x}_{at} to {f32}" for x in "aw" for at in (0, 1)),
            f"  %p_1 = fmul contract {f32} %af_1, %wf_1",
            f"  %s_1 = fadd contract {f32} %s, %p_1",
            f"  %p_0 = fmul contract {f32} %af_0, %wf_0",
            f"  %s_0 = fadd contract {f32} %s_1, %p_0",
            f"  ret {f32} %s_0",
            "}",
            "",
        ]
    )
