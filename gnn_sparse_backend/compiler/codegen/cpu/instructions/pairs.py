"""Rows rounded to bfloat16, and put in pairs: how operands of `instructions.amx` come to lie as tiles do.

A pair is two numbers side by side, taken as one word of 32 bits, which `instructions.transpose` transposes.
"""

from __future__ import annotations

from collections.abc import Collection

LANES = 16
_X86, _ARM = {"avx512bf16"}, {"bf16", "neon"}
FEATURES = ((),)
"""The processor needs none in particular: what rounds numbers is an instruction of x86 or of Arm, or ordinary ones."""
PREFIX = "gsb_pairs_"
_ROUND = "@llvm.x86.avx512bf16.cvtneps2bf16.512"
_WORDS, _HALVES, _FLOATS, _BF16 = "<16 x i32>", "<16 x i16>", "<16 x float>", "<16 x bfloat>"


def interleave_name(dtype: str) -> str:
    """Name of the function (target, first row, second row) that interleaves rows of 16 numbers as bfloat16 pairs."""
    return f"{PREFIX}of_{dtype}"


def round_name() -> str:
    """Name of the function (target, row) that rounds a row of 16 float32 numbers to bfloat16."""
    return f"{PREFIX}rounded"


def llvm_text(names: Collection[str], features: Collection[str]) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    has = set(features)
    texts = {interleave_name(dtype): _interleave(dtype, has) for dtype in ("float32", "bfloat16")}
    texts[round_name()] = _round(has)
    rounds = has >= _X86 and {interleave_name("float32"), round_name()}.intersection(names)
    head = f"declare {_BF16} {_ROUND}({_FLOATS})\n" if rounds else ""
    return head + "".join(texts[name] for name in sorted(names))


def _interleave(dtype: str, features: set[str]) -> str:
    lines = []
    for row in ("first", "second"):
        if dtype == "float32":
            lines += [f"%{row}.x = load {_FLOATS}, ptr %{row}, align 4", *_rounded(row, features)]
        else:
            lines.append(f"%{row}.h = load {_HALVES}, ptr %{row}, align 2")
        lines.append(f"%{row}.w = zext {_HALVES} %{row}.h to {_WORDS}")
    lines += [
        f"%high = shl {_WORDS} %second.w, {_all(16)}",
        f"%pairs = or {_WORDS} %first.w, %high",
        f"store {_WORDS} %pairs, ptr %to, align 2",
        "ret void",
    ]
    return _function(interleave_name(dtype), "ptr %to, ptr %first, ptr %second", lines)


def _round(features: set[str]) -> str:
    loaded = f"%row.x = load {_FLOATS}, ptr %row, align 4"
    stored = f"store {_HALVES} %row.h, ptr %to, align 2"
    return _function(round_name(), "ptr %to, ptr %row", [loaded, *_rounded("row", features), stored, "ret void"])


def _rounded(row: str, features: set[str]) -> list[str]:
    """The numbers of a row to the nearest bfloat16, those in the middle to the even one, as words of 16 bits."""
    x = f"{_FLOATS} %{row}.x"
    if features >= _X86 or features >= _ARM:
        rounding = f"call {_BF16} {_ROUND}({x})" if features >= _X86 else f"fptrunc {x} to {_BF16}"
        return [f"%{row}.b = {rounding}", f"%{row}.h = bitcast {_BF16} %{row}.b to {_HALVES}"]
    return [
        f"%{row}.i = bitcast {x} to {_WORDS}",
        f"%{row}.last = lshr {_WORDS} %{row}.i, {_all(16)}",
        f"%{row}.odd = and {_WORDS} %{row}.last, {_all(1)}",
        f"%{row}.half = add {_WORDS} %{row}.i, {_all(0x7FFF)}",
        f"%{row}.up = add {_WORDS} %{row}.half, %{row}.odd",
        f"%{row}.nan = fcmp uno {x}, %{row}.x",
        f"%{row}.s = select <16 x i1> %{row}.nan, {_WORDS} {_all(0x7FC00000)}, {_WORDS} %{row}.up",
        f"%{row}.t = lshr {_WORDS} %{row}.s, {_all(16)}",
        f"%{row}.h = trunc {_WORDS} %{row}.t to {_HALVES}",
    ]


def _all(value: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * LANES)}>"


def _function(name: str, parameters: str, lines: list[str]) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"define linkonce_odr hidden void @{name}({parameters}) alwaysinline nounwind {{\n{body}}}\n"
