"""Rows of bfloat16 numbers put in pairs: how operands of `instructions.amx` come to lie as tiles do.

A pair is two numbers side by side, taken as one word of 32 bits, which `instructions.transpose` transposes.
"""

from __future__ import annotations

from collections.abc import Collection

LANES = 16
_X86, _ARM = ("avx512bf16",), ("bf16", "neon")
FEATURES = _X86, _ARM
"""What the processor must have, in LLVM's spelling, one or the other."""
PREFIX = "gsb_pairs_"
_ROUND = "@llvm.x86.avx512bf16.cvtneps2bf16.512"
_WORDS, _HALVES, _FLOATS = "<16 x i32>", "<16 x i16>", "<16 x float>"


def interleave_name(dtype: str) -> str:
    """Name of the function (target, first row, second row) that interleaves rows of 16 numbers as bfloat16 pairs."""
    return f"{PREFIX}of_{dtype}"


def llvm_text(names: Collection[str], features: Collection[str]) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    own = set(_X86) <= set(features)
    texts = {interleave_name(dtype): _interleave(dtype, own) for dtype in ("float32", "bfloat16")}
    return "".join(texts[name] for name in sorted(names))


def _interleave(dtype: str, own: bool) -> str:
    """own: whether numbers are rounded by the intrinsic of x86; on Arm LLVM has an instruction for its rounding."""
    lines = []
    for row in ("first", "second"):
        x = f"{_FLOATS} %{row}.x"
        if dtype == "float32":
            lines += [
                f"%{row}.x = load {_FLOATS}, ptr %{row}, align 4",
                f"%{row}.b = call <16 x bfloat> {_ROUND}({x})" if own else f"%{row}.b = fptrunc {x} to <16 x bfloat>",
                f"%{row}.h = bitcast <16 x bfloat> %{row}.b to {_HALVES}",
            ]
        else:
            lines.append(f"%{row}.h = load {_HALVES}, ptr %{row}, align 2")
        lines.append(f"%{row}.w = zext {_HALVES} %{row}.h to {_WORDS}")
    lines += [
        f"%high = shl {_WORDS} %second.w, <{', '.join(['i32 16'] * LANES)}>",
        f"%pairs = or {_WORDS} %first.w, %high",
        f"store {_WORDS} %pairs, ptr %to, align 2",
        "ret void",
    ]
    head = ""
    if dtype == "float32" and own:
        head = f"declare <16 x bfloat> {_ROUND}({_FLOATS})\n"
    return head + _function(interleave_name(dtype), "ptr %to, ptr %first, ptr %second", lines)


def _function(name: str, parameters: str, lines: list[str]) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"define linkonce_odr hidden void @{name}({parameters}) alwaysinline nounwind {{\n{body}}}\n"
