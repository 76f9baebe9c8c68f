"""Sparse convolution, rows after rows (output-stationary): the sums of a block stay in registers for all offsets.

    Y[i] = sum over offsets k and pairs (j, i) of k of X[j] W[k]

The implicit product of matrices (implicit GEMM; Tang et al., TorchSparse++, 2023): rows of a block have pairs of the
same offsets, which sorting rows by the set of their offsets brings together, so no row meets an offset that it has no
pair of, and nothing is multiplied by zeros. A block of one row fits whatever offsets it has. The matrices of all
offsets are read for each block.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.program import Program
from .spec import LAYER, Block, ConvSpec, terms_of


def conv_rows(spec: ConvSpec) -> Program:
    """The program.

    Parameters: (num_tasks, num_columns, num_blocks, slots, rows, cols, offsets, column_tiles, group_tiles, in_features,
    wide_in, wide_out, steps, column_ptr, block_ptr, slot_ptr, FirstColumn, Offset, In, Row, X, W, Y). Task t has blocks
    of rows, and the column tiles FirstColumn[t], .... Row m of a block is Row[block, m] of Y, and meets at each slot of
    the block the offset Offset[slot] and row In[slot, m] of X; a block of fewer rows repeats its last. X, W and Y as in
    `conv_offsets`. Rows that are in no block are not written.
    """
    p = ProgramBuilder("conv_rows")
    index = spec.index_dtype
    tasks, columns, blocks, slots, rows, cols, *of_layer = p.sizes(
        "num_tasks", "num_columns", "num_blocks", "slots", "rows", "cols", *LAYER
    )
    offsets, tiles, of_group, channels, wide_in, wide_out = of_layer
    F, two = terms_of(p, spec, "steps")
    T = p.dense_fixed("T", tasks)
    L = p.dense_variable("L", T, (columns, columns), "column_ptr", index)
    B = p.dense_variable("B", T, (blocks, blocks), "block_ptr", index)
    J = p.dense_variable("J", B, (slots, slots), "slot_ptr", index)
    M = p.dense_fixed("M", spec.block)
    FirstColumn, Offset = p.buffer("FirstColumn", (T,), index), p.buffer("Offset", (T, B, J), index)
    In, Row = p.buffer("In", (T, B, J, M), index), p.buffer("Row", (T, B, M), index)
    C = p.dense_fixed("C", spec.lanes)
    CW = p.dense_fixed("CW", spec.tile * (2 if spec.bf16_pairs else 1))
    X = p.buffer("X", (p.dense_fixed("N", cols), p.dense_fixed("WI", wide_in)), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("K", offsets), p.dense_fixed("Q", tiles), F, CW), spec.dtype)
    Y = p.buffer("Y", (p.dense_fixed("NY", rows), p.dense_fixed("WO", wide_out)), spec.accumulator)
    with p.iterate("tasks", (T,), "S", ("t",)) as (t,):
        with p.iterate("columns", (L,), "S", ("l",)) as (l,):
            column = FirstColumn[t] + l
            with p.iterate("blocks", (B,), "S", ("b",)) as (b,):
                sums = Block(p, spec, C)
                sums.clear()
                with p.iterate("slots_of_block", (J,), "R", ("j",)) as (j,):
                    sums.multiply(
                        spec,
                        F,
                        two,
                        lambda m, f: X[In[t, b, j, m], column // of_group * channels + f],
                        lambda f, place: W[Offset[t, b, j], column, f, place],
                    )
                for m, vector, c, place in sums.each("after"):
                    Y[Row[t, b, m], column * spec.tile + place] = vector[c]
    return p.finish()
