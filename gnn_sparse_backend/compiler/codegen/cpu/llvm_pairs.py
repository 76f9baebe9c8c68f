"""Rows of bfloat16 numbers put in pairs, and pairs transposed: how operands of `llvm_amx` come to lie as tiles do.

A pair is two numbers side by side, taken as one word of 32 bits. TVM has no vectors whose lanes change places, so the
text is LLVM's.
"""

from __future__ import annotations

from collections.abc import Collection

LANES = 16
FEATURES = ("avx512bf16",)
"""What the processor must have, in LLVM's spelling."""
PREFIX = "gsb_pairs_"
_WORDS, _HALVES, _FLOATS = "<16 x i32>", "<16 x i16>", "<16 x float>"


def interleave_name(dtype: str) -> str:
    """Name of the function (target, first row, second row) that interleaves rows of 16 numbers as bfloat16 pairs."""
    return f"{PREFIX}of_{dtype}"


def transpose_name() -> str:
    """Name of the function (target, its second row, source, its second row) that transposes 16 x 16 pairs."""
    return f"{PREFIX}transposed"


def llvm_text(names: Collection[str]) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    texts = {
        interleave_name("float32"): _interleave("float32"),
        interleave_name("bfloat16"): _interleave("bfloat16"),
        transpose_name(): _transpose(),
    }
    return "".join(texts[name] for name in sorted(names))


def _interleave(dtype: str) -> str:
    lines = []
    for row in ("first", "second"):
        if dtype == "float32":
            lines += [
                f"%{row}.x = load {_FLOATS}, ptr %{row}, align 4",
                f"%{row}.b = call <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512({_FLOATS} %{row}.x)",
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
    if dtype == "float32":
        head = f"declare <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512({_FLOATS})\n"
    return head + _function(interleave_name(dtype), "ptr %to, ptr %first, ptr %second", lines)


def _transpose() -> str:
    """Rows with a number of bit b change the lanes of the other half with those 2^b further (Eklundh, 1972)."""
    lines, rows = [], []
    for x, y in (("to", "below"), ("from", "next")):
        lines += [
            f"%{x}.a = ptrtoint ptr %{x} to i64",
            f"%{x}.b = ptrtoint ptr %{y} to i64",
            f"%{x}.step = sub i64 %{x}.b, %{x}.a",
        ]
    for row in range(LANES):
        lines += [
            f"%from.o{row} = mul i64 %from.step, {row}",
            f"%from.p{row} = getelementptr i8, ptr %from, i64 %from.o{row}",
            f"%r0.{row} = load {_WORDS}, ptr %from.p{row}, align 2",
        ]
        rows.append(f"%r0.{row}")
    for level, step in enumerate((1, 2, 4, 8), 1):
        upper = [lane + LANES - step if lane & step else lane for lane in range(LANES)]
        lower = [lane + LANES if lane & step else lane + step for lane in range(LANES)]
        new = list(rows)
        for row in range(LANES):
            if not row & step:
                for at, lanes in ((row, upper), (row + step, lower)):
                    mask = ", ".join(f"i32 {lane}" for lane in lanes)
                    new[at] = f"%r{level}.{at}"
                    both = f"{_WORDS} {rows[row]}, {_WORDS} {rows[row + step]}"
                    lines.append(f"{new[at]} = shufflevector {both}, {_WORDS} <{mask}>")
        rows = new
    for row in range(LANES):
        lines += [
            f"%to.o{row} = mul i64 %to.step, {row}",
            f"%to.p{row} = getelementptr i8, ptr %to, i64 %to.o{row}",
            f"store {_WORDS} {rows[row]}, ptr %to.p{row}, align 2",
        ]
    return _function(transpose_name(), "ptr %to, ptr %below, ptr %from, ptr %next", [*lines, "ret void"])


def _function(name: str, parameters: str, lines: list[str]) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"define linkonce_odr hidden void @{name}({parameters}) alwaysinline nounwind {{\n{body}}}\n"
