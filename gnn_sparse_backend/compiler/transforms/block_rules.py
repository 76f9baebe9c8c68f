"""The formats of blocks and diagonals as rules of `decompose_format`. Beside each stands its module in `formats/`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..language.axes import Axis, Size, dense_fixed, dense_variable, sparse_variable
from ..language.expr import Expr, as_expr, maximum, minimum
from ..language.program import Buffer, Program
from .format_rules import standing_on
from .rewrite_rule import FormatRewriteRule


def bsr_rule(
    program: Program,
    block: int | tuple[int, int],
    *,
    name: str = "bsr",
    tasks: str | None = None,
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] | None = None,
    index_dtype: str | None = None,
    masked: bool = True,
    by_columns: bool = False,
) -> FormatRewriteRule:
    """Blocks of (rows, columns), or square ones. Parameters added: mb_, nb_, nnzb_, and indptr and indices of the
    blocks, each with the suffix `name`.

    For a program whose rows are grouped into tasks (`group_axis`), of whole rows of blocks each; parameter added: ptr_
    (first row of blocks of each task).

    masked=False: what a block has beside non-zeros counts as zeros, which meet the operands: these must be finite, and
    reach as far as the blocks. by_columns: the values of a block are stored column by column.
    """
    height, width = (block, block) if isinstance(block, int) else block
    mb, nb, nnzb = (Size(f"{s}_{name}") for s in ("mb", "nb", "nnzb"))
    arrays = f"indptr_{name}", f"indices_{name}"
    dtype = index_dtype or program.axis(columns).index_dtype
    around = () if tasks is None else (tasks,)
    if tasks is None:
        IO = dense_fixed(f"IO_{name}", mb)
    else:
        IO = dense_variable(f"IO_{name}", program.axis(tasks), (mb, mb), f"ptr_{name}", dtype)
    JO = sparse_variable(f"JO_{name}", IO, (nb, nnzb), arrays, dtype)
    made = _in_blocks(program, (height, width), (IO, JO), around, name, rows, columns, buffers, by_columns)
    return replace(made, sizes=(mb, nb, nnzb), masked=masked, whole=True)


def _in_blocks(
    program: Program,
    block: tuple[int, int],
    grid: tuple[Axis, Axis],
    around: tuple[str, ...],
    name: str,
    rows: str,
    columns: str,
    buffers: tuple[str, ...] | None,
    by_columns: bool,
) -> FormatRewriteRule:
    """A rule for blocks on a grid of (rows of blocks, blocks), without its sizes."""
    height, width = block
    IO, JO = grid
    II, JI = dense_fixed(f"II_{name}", height), dense_fixed(f"JI_{name}", width)
    within = (JI, II) if by_columns else (II, JI)

    def into(*at: Any) -> tuple[Any, ...]:
        *t, i, j = at
        inside = (j % width, i % height) if by_columns else (i % height, j % width)
        return (*t, i // height, j // width, *inside)

    def back(*at: Any) -> tuple[Any, ...]:
        *t, io, jo, a, b = at
        ii, ji = (b, a) if by_columns else (a, b)
        return (*t, io * height + ii, jo * width + ji)

    return FormatRewriteRule(
        name,
        (),
        (IO, JO, *within),
        standing_on(program, buffers, *around, rows, columns),
        (*around, rows, columns),
        (*around, IO.name, JO.name, *(a.name for a in within)),
        {**{t: (t,) for t in around}, rows: (IO.name, II.name), columns: (JO.name, JI.name)},
        into,
        back,
    )


def dbsr_rule(
    program: Program,
    block: int | tuple[int, int],
    *,
    name: str = "dbsr",
    tasks: str | None = None,
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] | None = None,
    index_dtype: str | None = None,
    masked: bool = True,
    by_columns: bool = False,
) -> FormatRewriteRule:
    """Blocks as of `bsr_rule`, of the rows of blocks that have any. Parameters added, with the suffix: stored_, nb_,
    nnzb_, indptr_, indices_, and Rows_ (the row of blocks that each is).

    With tasks, in the place of Rows_: mb_, ptr_ (first stored row of each task), listed_ (the row of blocks within its
    task that each is).
    """
    height, width = (block, block) if isinstance(block, int) else block
    mb, stored, nb, nnzb = (Size(f"{s}_{name}") for s in ("mb", "stored", "nb", "nnzb"))
    dtype = index_dtype or program.axis(columns).index_dtype
    if tasks is None:
        IO = dense_fixed(f"IO_{name}", stored)
    else:
        listed = f"ptr_{name}", f"listed_{name}"
        IO = sparse_variable(f"IO_{name}", program.axis(tasks), (mb, stored), listed, dtype)
    JO = sparse_variable(f"JO_{name}", IO, (nb, nnzb), (f"indptr_{name}", f"indices_{name}"), dtype)
    around = () if tasks is None else (tasks,)
    made = _in_blocks(program, (height, width), (IO, JO), around, name, rows, columns, buffers, by_columns)
    if tasks is not None:
        return replace(made, sizes=(mb, stored, nb, nnzb), masked=masked)
    Rows = Buffer(f"Rows_{name}", (IO,), dtype)
    return replace(
        made,
        sizes=(stored, nb, nnzb),
        index_map=None,
        inverse_index_map=lambda io, *at: made.inverse_index_map(Rows[io], *at),
        arrays=(Rows,),
        masked=masked,
    )


def sr_bcrs_rule(
    program: Program,
    block: tuple[int, int],
    *,
    name: str = "sr_bcrs",
    tasks: str | None = None,
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] | None = None,
    index_dtype: str | None = None,
    masked: bool = True,
    by_columns: bool = False,
) -> FormatRewriteRule:
    """Blocks of (rows, columns) whose columns are named one by one, -1 for none. Parameters added, with the suffix:
    tiles_, groups_, indptr_ (the blocks of each tile of rows), Columns_ (of each block); with tasks ptr_ (first tile of
    each task).

    masked, by_columns: as of `bsr_rule`; where blocks are not masked, a column that is none has to be any other.
    """
    height = block[0]
    index_dtype = index_dtype or program.axis(columns).index_dtype
    around = () if tasks is None else (tasks,)
    tiles, groups = (Size(f"{s}_{name}") for s in ("tiles", "groups"))
    if tasks is None:
        IO = dense_fixed(f"IO_{name}", tiles)
    else:
        IO = dense_variable(f"IO_{name}", program.axis(tasks), (tiles, tiles), f"ptr_{name}", index_dtype)
    JO = dense_variable(f"JO_{name}", IO, (groups, groups), f"indptr_{name}", index_dtype)
    made = _in_blocks(program, block, (IO, JO), around, name, rows, columns, buffers, by_columns)
    JI = next(axis for axis in made.axes if axis.name == f"JI_{name}")
    parents = () if tasks is None else (program.axis(tasks),)
    Columns = Buffer(f"Columns_{name}", (*parents, IO, JO, JI), index_dtype)

    def back(*at: Any) -> tuple[Any, ...]:
        *t, io, jo, a, b = at
        ii, ji = (b, a) if by_columns else (a, b)
        return (*t, io * height + ii, Columns[(*t, io, jo, ji)])

    return replace(
        made,
        sizes=(tiles, groups),
        index_map=None,
        inverse_index_map=back,
        arrays=(Columns,),
        masked=masked,
        whole=True,
    )


def dia_rule(
    program: Program,
    *,
    name: str = "dia",
    tasks: str | None = None,
    rows: str = "I",
    columns: str = "J",
    buffers: tuple[str, ...] | None = None,
    masked: bool = True,
) -> FormatRewriteRule:
    """Diagonals, each with a value for every row. Parameters added, with the suffix: diagonals_, Offsets_ (column minus
    row of each); with tasks Start_ (first row of each task).

    masked=False: values beside non-zeros are zeros, and meet the first or last column where there is no other.
    """
    J = program.axis(columns)
    diagonals = Size(f"diagonals_{name}")
    D = dense_fixed(f"D_{name}", diagonals)
    Offsets = Buffer(f"Offsets_{name}", (D,), J.index_dtype)
    around = () if tasks is None else (tasks,)
    Start = Buffer(f"Start_{name}", tuple(map(program.axis, around)), J.index_dtype)

    def back(d: Expr, *at: Any) -> tuple[Any, ...]:
        *t, i = at
        column = (Start[tuple(t)] + i if t else i) + Offsets[d]
        last = as_expr(J.length) - 1
        return (*t, i, column if masked else minimum(maximum(column, 0), last))

    return FormatRewriteRule(
        name,
        (diagonals,),
        (D,),
        standing_on(program, buffers, *around, rows, columns),
        (*around, rows, columns),
        (D.name, *around, rows),
        {**{t: (t,) for t in around}, rows: (rows,), columns: (D.name,)},
        None,
        back,
        (Offsets, Start) if around else (Offsets,),
        masked=masked,
        whole=True,
    )
