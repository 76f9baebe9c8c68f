"""Products of tiles of bfloat16 numbers with float32 sums in vector registers, two terms at a time (``vdpbf16ps``), or
by what that computes where a processor has no such instruction: see `instructions.pair_dot`.

The registers have 8 x 32 or 16 x 16 sums, and each two terms are one or two loads of pairs of columns, 8 or 16 of two
terms of a row, which go to all lanes, and 16 instructions. Sums lie in memory as rows do, before and behind all terms.

Operands lie as those of AMX do (`instructions.amx`): the left one in rows, whose terms are neighbours, the right one in
pairs, a row of which has two terms of all columns side by side.
"""

from __future__ import annotations

from collections.abc import Collection

from . import pair_dot
from .rows import function, in_loops, load, row, step

SHAPES = ((8, 32), (16, 16))
"""Rows and columns of the sums of a call, the fastest first."""
TERMS = 2
"""Terms that an instruction takes."""
FEATURES = ((),)
"""The processor needs none in particular."""
PREFIX = "gsb_dot_tile_"
_LANES = 16
_FIRST = 200
"""What is said of loops has numbers from here on."""
_DOT = f"{PREFIX}lanes"
_FLOATS, _WORDS = f"<{_LANES} x float>", f"<{_LANES} x i32>"


def product_name(rows: int, columns: int, terms: int, fresh: bool = False) -> str:
    """Name of the function (first row of sums, second row, and these of the left operand and of the pairs of the right
    one) that adds a product of ``terms`` terms, a multiple of `TERMS`; or that stores it, where ``fresh``.
    """
    return f"{PREFIX}{rows}_{columns}_{terms}_{int(fresh)}"


def llvm_text(names: Collection[str], features: Collection[str] = ()) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    return pair_dot.llvm_text(_LANES, features, name=_DOT) + in_loops(names, _FIRST, _product)


def _product(name: str, loop: int) -> str:
    """loop: number of the loop over terms, for what LLVM is told of it."""
    rows, columns, terms, fresh = map(int, name.removeprefix(PREFIX).split("_"))
    tiles = [(i, j) for i in range(rows) for j in range(columns // _LANES)]
    lines = ["entry:", *(line for which in "cab" for line in step(which))]
    for at in range(rows):
        lines += [*row("c", at), *row("a", at)]
    lines += [] if fresh else [load(f"start.{i}.{j}", f"c.p{i}", 4 * _LANES * j, _FLOATS) for i, j in tiles]
    lines += ["br label %next", "next:", "%pair = phi i64 [ 0, %entry ], [ %pair.next, %next ]"]
    for i, j in tiles:
        start = "zeroinitializer" if fresh else f"%start.{i}.{j}"
        lines.append(f"%t.{i}.{j} = phi {_FLOATS} [ {start}, %entry ], [ %r.{i}.{j}, %next ]")
    lines += ["%pair.left = mul i64 %pair, 4", "%pair.right = mul i64 %pair, %b.step"]
    lines += ["%b.p = getelementptr i8, ptr %b, i64 %pair.right"]
    lines += [load(f"right.{j}", "b.p", 4 * _LANES * j, _WORDS) for j in range(columns // _LANES)]
    for i in range(rows):
        lines += [
            f"%a.{i}.p = getelementptr i8, ptr %a.p{i}, i64 %pair.left",
            f"%a.{i} = load i32, ptr %a.{i}.p, align 2",
            f"%one.{i} = insertelement {_WORDS} poison, i32 %a.{i}, i32 0",
            f"%left.{i} = shufflevector {_WORDS} %one.{i}, {_WORDS} poison, {_WORDS} zeroinitializer",
        ]
    for i, j in tiles:
        operands = f"{_FLOATS} %t.{i}.{j}, {_WORDS} %left.{i}, {_WORDS} %right.{j}"
        lines.append(f"%r.{i}.{j} = call {_FLOATS} @{_DOT}({operands})")
    lines += ["%pair.next = add i64 %pair, 1", f"%more = icmp ult i64 %pair.next, {terms // TERMS}"]
    lines += [f"br i1 %more, label %next, label %done, !llvm.loop !{loop}", "done:"]
    for i, j in tiles:
        lines += [
            f"%end.{i}.{j} = getelementptr i8, ptr %c.p{i}, i64 {4 * _LANES * j}",
            f"store {_FLOATS} %r.{i}.{j}, ptr %end.{i}.{j}, align 4",
        ]
    return function(name, ("c", "a", "b"), [*lines, "ret void"])
