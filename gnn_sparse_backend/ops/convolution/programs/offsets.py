"""Sparse convolution, offset after offset over a range of rows (weight-stationary).

    Y[i] = sum over offsets k and pairs (j, i) of k of X[j] W[k]

A task has a range of rows of Y and of column tiles. The sums of a tile wait in a local buffer that fits the first-level
cache, while the offsets take turns: the tile of W[k], which is loaded once for all pairs of k in the range, stays there
as well, and rows of X are read where they are. No row meets an offset that it has no pair of, and nothing of the size
of the pairs times a width is stored (gather-matmul-scatter, as in Choy et al., 4D spatio-temporal ConvNets, 2019, in
one).
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import minimum
from ....compiler.language.program import Program
from .spec import LAYER, Block, ConvSpec, terms_of


def conv_offsets(spec: ConvSpec) -> Program:
    """The program.

    Parameters: (num_tasks, num_columns, num_panels, num_blocks, rows, cols, pairs, offsets, column_tiles, group_tiles,
    in_features, wide_in, wide_out, steps, column_ptr, panel_ptr, block_ptr, row_ptr, FirstColumn, FirstRow, Offset,
    Start, Last, In, Out, X, W, Y). Task t has the rows FirstRow[t], ... of Y, as many as row_ptr says, at most
    `spec.rows`, and the column tiles FirstColumn[t], .... A panel has the pairs Start .. Last of an offset and a task,
    in blocks of `spec.block`, of which the last is filled up with copies of its last pair: all of a block is read
    before any is stored, and copies store alike. ``group_tiles`` column tiles belong to a group, whose channels of X
    are ``in_features``. W is (offsets, column_tiles, steps, tile), in pairs (offsets, column_tiles, steps, 2 * tile); Y
    is (rows, column_tiles * tile) in the accumulation type.
    """
    p = ProgramBuilder("conv_offsets")
    index = spec.index_dtype
    tasks, columns, panels, blocks, rows, cols, pairs, *of_layer = p.sizes(
        "num_tasks", "num_columns", "num_panels", "num_blocks", "rows", "cols", "pairs", *LAYER
    )
    offsets, tiles, of_group, channels, wide_in, wide_out = of_layer
    F, two = terms_of(p, spec, "steps")
    T = p.dense_fixed("T", tasks)
    L = p.dense_variable("L", T, (columns, columns), "column_ptr", index)
    P = p.dense_variable("P", T, (panels, panels), "panel_ptr", index)
    B = p.dense_variable("B", P, (blocks, blocks), "block_ptr", index)
    I = p.dense_variable("I", T, (rows, rows), "row_ptr", index)
    FirstColumn, FirstRow = (p.buffer(name, (T,), index) for name in ("FirstColumn", "FirstRow"))
    Offset, Start, Last = (p.buffer(name, (T, P), index) for name in ("Offset", "Start", "Last"))
    Z = p.dense_fixed("Z", pairs)
    In, Out = p.buffer("In", (Z,), index), p.buffer("Out", (Z,), index)
    C = p.dense_fixed("C", spec.lanes)
    CT, CW = p.dense_fixed("CT", spec.tile), p.dense_fixed("CW", spec.tile * (2 if spec.bf16_pairs else 1))
    X = p.buffer("X", (p.dense_fixed("N", cols), p.dense_fixed("WI", wide_in)), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("K", offsets), p.dense_fixed("Q", tiles), F, CW), spec.dtype)
    Y = p.buffer("Y", (p.dense_fixed("M", rows), p.dense_fixed("WO", wide_out)), spec.accumulator)
    R = p.dense_fixed("R", spec.rows)
    with p.iterate("tasks", (T,), "S", ("t",)) as (t,):
        with p.iterate("columns", (L,), "S", ("l",)) as (l,):
            Total = p.local("Total", (R, CT), spec.accumulator)
            column = FirstColumn[t] + l
            with p.iterate("clear", (I,), "S", ("i0",)) as (i,):
                with p.iterate("clear_row", (C,), "S", ("c0",)) as (c,):
                    for first in range(0, spec.tile, spec.lanes):
                        Total[i, c + first] = 0.0
            with p.iterate("panels", (P,), "R", ("v",)) as (v,):
                with p.iterate("blocks", (B,), "R", ("b",)) as (b,):
                    at = [minimum(Start[t, v] + b * spec.block + m, Last[t, v]) for m in range(spec.block)]
                    sums = Block(p, spec, C)
                    sums.clear()
                    sums.multiply(
                        spec,
                        F,
                        two,
                        lambda m, f: X[In[at[m]], column // of_group * channels + f],
                        lambda f, place: W[Offset[t, v], column, f, place],
                    )
                    for m, vector, c, place in sums.each("before"):
                        vector[c] = vector[c] + Total[Out[at[m]] - FirstRow[t], place]
                    for m, vector, c, place in sums.each("after"):
                        Total[Out[at[m]] - FirstRow[t], place] = vector[c]
            with p.iterate("out", (I,), "S", ("i1",)) as (i,):
                with p.iterate("out_row", (C,), "S", ("c1",)) as (c,):
                    for first in range(0, spec.tile, spec.lanes):
                        Y[FirstRow[t] + i, column * spec.tile + first + c] = Total[i, c + first]
    return p.finish()
