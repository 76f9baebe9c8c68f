"""Products of tiles of bfloat16 numbers with float32 sums, by Arm's instruction for matrices (``bfmmla``), or what it
computes where a processor has none: so a program that is scheduled for Arm runs anywhere.

The instruction adds to 2 x 2 sums, in one register, the product of two rows of four terms with two columns of four (Arm
ARM, BFMMLA): products in pairs, rounded to odd where they are added to each other, numbers below the smallest normal
one taken for zero. Here 16 of its registers hold 8 x 8 sums, and each four terms are four loads of rows, four of pairs
of columns and 16 instructions. Sums lie in memory as rows do, before and behind all terms.

Operands lie as those of AMX do (`instructions.amx`): the left one in rows, whose terms are neighbours, the right one in
pairs, a row of which has two terms of all columns side by side.
"""

from __future__ import annotations

from collections.abc import Collection

from .rows import function, in_loops, load, row, step

SIDE = 8
SHAPES = ((SIDE, SIDE),)
"""Rows and columns of the sums of a call."""
TERMS = 4
"""Terms that an instruction takes."""
FEATURES = ((),)
"""The processor needs none in particular."""
_WITH_INSTRUCTION = {"bf16", "neon"}
_FIRST = 100
"""What is said of loops has numbers from here on: those below are TVM's own."""
PREFIX = "gsb_mmla_"
_FLOATS, _WORDS, _BF16, _ROWS = "<4 x float>", "<4 x i32>", "<8 x bfloat>", "<2 x i64>"
_INSTRUCTION, _ORDINARY = "@llvm.aarch64.neon.bfmmla", "@gsb_mmla_ordinary"


def product_name(rows: int, columns: int, terms: int, fresh: bool = False) -> str:
    """Name of the function (first row of 8 x 8 sums, second row, and these of the left operand and of the pairs of the
    right one) that adds a product of ``terms`` terms, a multiple of `TERMS`; or that stores it, where ``fresh``.
    """
    return f"{PREFIX}{rows}_{columns}_{terms}_{int(fresh)}"


def llvm_text(names: Collection[str], features: Collection[str] = ()) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    has = set(features) >= _WITH_INSTRUCTION
    mmla = _INSTRUCTION if has else _ORDINARY
    declared = f"declare {_FLOATS} {mmla}({_FLOATS}, {_BF16}, {_BF16})\n" if has else _ordinary()
    return declared + in_loops(names, _FIRST, lambda name, loop: _product(name, loop, mmla))


def _ordinary() -> str:
    """What the instruction computes, but for roundings: the upper half of a float32 is a bfloat16."""
    lines = [f"%{x}.h = bitcast {_BF16} %{x} to <8 x i16>" for x in "ab"]
    total = "%s"
    for k in range(TERMS):
        # the lanes are sums of row 0 with rows 0 and 1, then of row 1 with these
        for x, rows in (("a", (0, 0, 1, 1)), ("b", (0, 1, 0, 1))):
            mask = ", ".join(f"i32 {TERMS * row + k}" for row in rows)
            lines += [
                f"%{x}.n{k} = shufflevector <8 x i16> %{x}.h, <8 x i16> %{x}.h, <4 x i32> <{mask}>",
                f"%{x}.z{k} = zext <4 x i16> %{x}.n{k} to {_WORDS}",
                f"%{x}.w{k} = shl {_WORDS} %{x}.z{k}, <i32 16, i32 16, i32 16, i32 16>",
                f"%{x}.f{k} = bitcast {_WORDS} %{x}.w{k} to {_FLOATS}",
            ]
        lines += [
            f"%p{k} = fmul contract {_FLOATS} %a.f{k}, %b.f{k}",
            f"%s{k} = fadd contract {_FLOATS} {total}, %p{k}",
        ]
        total = f"%s{k}"
    body = "".join(f"  {line}\n" for line in [*lines, f"ret {_FLOATS} {total}"])
    parameters = f"{_FLOATS} %s, {_BF16} %a, {_BF16} %b"
    return f"define linkonce_odr hidden {_FLOATS} {_ORDINARY}({parameters}) alwaysinline nounwind {{\n{body}}}\n"


def _product(name: str, loop: int, mmla: str) -> str:
    """loop: number of the loop over terms, for what LLVM is told of it. mmla: what is called for four of them."""
    _, _, terms, fresh = map(int, name.removeprefix(PREFIX).split("_"))
    lines = ["entry:", *(line for which in "cab" for line in step(which))]
    for at in range(SIDE):
        lines += row("c", at)
        lines += [] if fresh else [*(load(f"c.{at}.{half}", f"c.p{at}", 16 * half, _FLOATS) for half in (0, 1))]
        lines += row("a", at)
    for i in range(0, 0 if fresh else SIDE, 2):
        for half in (0, 1):
            first, second = f"%c.{i}.{half}", f"%c.{i + 1}.{half}"
            for which, mask in enumerate(((0, 1, 4, 5), (2, 3, 6, 7))):
                lines.append(_shuffle(f"start.{i // 2}.{2 * half + which}", _FLOATS, first, second, mask))
    lines += ["br label %next", "next:", "%k = phi i64 [ 0, %entry ], [ %k.next, %next ]"]
    tiles = [(i, j) for i in range(SIDE // 2) for j in range(SIDE // 2)]
    for i, j in tiles:
        start = "zeroinitializer" if fresh else f"%start.{i}.{j}"
        lines.append(f"%t.{i}.{j} = phi {_FLOATS} [ {start}, %entry ], [ %r.{i}.{j}, %next ]")
    lines += ["%k.bytes = mul i64 %k, 2", "%pair = lshr i64 %k, 1", "%pair.bytes = mul i64 %pair, %b.step"]
    lines += ["%b.p = getelementptr i8, ptr %b, i64 %pair.bytes", "%b.q = getelementptr i8, ptr %b.p, i64 %b.step"]
    for half in (0, 1):
        for pair in "pq":  # terms 0 and 1 of four columns, terms 2 and 3
            lines.append(load(f"b.{pair}.{half}", f"b.{pair}", 16 * half, _WORDS))
        for which, mask in enumerate(((0, 4, 1, 5), (2, 6, 3, 7))):
            j = 2 * half + which
            lines.append(_shuffle(f"columns.w{j}", _WORDS, f"%b.p.{half}", f"%b.q.{half}", mask))
            lines.append(f"%columns.{j} = bitcast {_WORDS} %columns.w{j} to {_BF16}")
    for i in range(SIDE // 2):
        for which in (0, 1):
            own = f"a.{i}.{which}"
            lines.append(f"%{own}.p = getelementptr i8, ptr %a.p{2 * i + which}, i64 %k.bytes")
            lines.append(f"%{own} = load i64, ptr %{own}.p, align 2")
        lines.append(f"%rows.one{i} = insertelement {_ROWS} poison, i64 %a.{i}.0, i32 0")
        lines.append(f"%rows.two{i} = insertelement {_ROWS} %rows.one{i}, i64 %a.{i}.1, i32 1")
        lines.append(f"%rows.{i} = bitcast {_ROWS} %rows.two{i} to {_BF16}")
    for i, j in tiles:
        operands = f"{_FLOATS} %t.{i}.{j}, {_BF16} %rows.{i}, {_BF16} %columns.{j}"
        lines.append(f"%r.{i}.{j} = call {_FLOATS} {mmla}({operands})")
    lines += [f"%k.next = add i64 %k, {TERMS}", f"%more = icmp ult i64 %k.next, {terms}"]
    lines += [f"br i1 %more, label %next, label %done, !llvm.loop !{loop}", "done:"]
    for i in range(SIDE // 2):
        for half in (0, 1):
            first, second = f"%r.{i}.{2 * half}", f"%r.{i}.{2 * half + 1}"
            for which, mask in enumerate(((0, 1, 4, 5), (2, 3, 6, 7))):
                part = f"end.{2 * i + which}.{half}"
                lines.append(_shuffle(part, _FLOATS, first, second, mask))
                lines.append(f"%{part}.p = getelementptr i8, ptr %c.p{2 * i + which}, i64 {16 * half}")
                lines.append(f"store {_FLOATS} %{part}, ptr %{part}.p, align 4")
    lines.append("ret void")
    return function(name, ("c", "a", "b"), lines)


def _shuffle(name: str, kind: str, first: str, second: str, mask: tuple[int, ...]) -> str:
    chosen = ", ".join(f"i32 {lane}" for lane in mask)
    return f"%{name} = shufflevector {kind} {first}, {kind} {second}, <4 x i32> <{chosen}>"
