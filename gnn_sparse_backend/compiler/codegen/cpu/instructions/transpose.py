"""Squares of words of 32 bits transposed in registers: each of their rows is a vector.

TVM has no vectors whose lanes change places, so the text is LLVM's. It is good for any processor; vectors that the
processor does not have are taken apart by LLVM.
"""

from __future__ import annotations

from collections.abc import Collection

PREFIX = "gsb_transposed_"
FEATURES = ((),)
"""The processor needs none in particular."""
QUARTER = 4
"""Words of 128 bits, within which x86 interleaves two vectors by one instruction."""


def transpose_name(lanes: int) -> str:
    """Name of the function (target, its second row, source, its second row) that transposes ``lanes`` x ``lanes``
    words. lanes: a power of two, 4 at least.
    """
    return f"{PREFIX}{lanes}"


def llvm_text(names: Collection[str], features: Collection[str] = ()) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    return "".join(_transpose(int(name.removeprefix(PREFIX))) for name in sorted(names))


def _transpose(lanes: int) -> str:
    """Transpose within squares of 4 x 4 words by interleaving words and then pairs. Then rows with a number of bit b
    change the lanes of the other half with those 2^b further (Eklundh, 1972).
    """
    words, lines, rows = f"<{lanes} x i32>", [], []
    for x, y in (("to", "below"), ("from", "next")):
        lines += [
            f"%{x}.a = ptrtoint ptr %{x} to i64",
            f"%{x}.b = ptrtoint ptr %{y} to i64",
            f"%{x}.step = sub i64 %{x}.b, %{x}.a",
        ]
    for row in range(lanes):
        lines += [
            f"%from.o{row} = mul i64 %from.step, {row}",
            f"%from.p{row} = getelementptr i8, ptr %from, i64 %from.o{row}",
            f"%r.{row} = load {words}, ptr %from.p{row}, align 2",
        ]
        rows.append(f"%r.{row}")

    def shuffle(first: int, second: int, chosen: list[int], into: str) -> str:
        mask = ", ".join(f"i32 {lane}" for lane in chosen)
        lines.append(f"{into} = shufflevector {words} {rows[first]}, {words} {rows[second]}, {words} <{mask}>")
        return into

    for each in (1, 2):
        halves = [_interleaved(lanes, each, half) for half in (0, 1)]
        new = list(rows)
        for at in range(lanes):
            within, half = at % QUARTER, at % 2
            # words: rows 0 and 1, then 2 and 3; pairs: what rows 0 and 2 have become, then 1 and 3
            first = at - half if each == 1 else at - within + within // 2
            new[at] = shuffle(first, first + each, halves[half], f"%u{each}.{at}")
        rows = new
    step = QUARTER
    while step < lanes:
        upper = [lane + lanes - step if lane & step else lane for lane in range(lanes)]
        lower = [lane + lanes if lane & step else lane + step for lane in range(lanes)]
        new = list(rows)
        for row in range(lanes):
            if not row & step:
                new[row] = shuffle(row, row + step, upper, f"%x{step}.{row}")
                new[row + step] = shuffle(row, row + step, lower, f"%x{step}.{row + step}")
        rows, step = new, 2 * step
    for row in range(lanes):
        lines += [
            f"%to.o{row} = mul i64 %to.step, {row}",
            f"%to.p{row} = getelementptr i8, ptr %to, i64 %to.o{row}",
            f"store {words} {rows[row]}, ptr %to.p{row}, align 2",
        ]
    head = f"define linkonce_odr hidden void @{transpose_name(lanes)}(ptr %to, ptr %below, ptr %from, ptr %next)"
    body = "".join(f"  {line}\n" for line in [*lines, "ret void"])
    return f"{head} alwaysinline nounwind {{\n{body}}}\n"


def _interleaved(lanes: int, each: int, half: int) -> list[int]:
    """Lanes of two vectors, ``each`` words of one and of the other in turns, from one half of every 128 bits."""
    first = [base + half * QUARTER // 2 + at for base in range(0, lanes, QUARTER) for at in range(QUARTER // 2)]
    runs = [first[at : at + each] for at in range(0, len(first), each)]
    return [lane for run in runs for lane in (*run, *(lanes + other for other in run))]
