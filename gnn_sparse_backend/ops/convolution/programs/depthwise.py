"""Depthwise sparse convolution: every channel by itself, so that a row is multiplied element by element.

    Y[i] = sum over offsets k and pairs (j, i) of k of X[j] * W[k]        W[k] = sum over pairs of k of X[j] * G[i]

A row of Y, or of W, is registers while its pairs take turns: nothing is stored but the result.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import cast
from ....compiler.language.program import Program
from .spec import Block, ConvSpec


def depthwise(spec: ConvSpec) -> Program:
    """Y[i]; a block is one row.

    Parameters: (num_tasks, rows, cols, pairs, offsets, tiles, width, task_ptr, row_ptr, Offset, In, X, W, Y). Task t
    has a range of rows; row i the pairs from row_ptr[i] on. X is (cols, width), W (offsets, width), Y (rows, width) in
    the accumulation type, width = tiles * tile.
    """
    p = ProgramBuilder("depthwise")
    index = spec.index_dtype
    tasks, rows, cols, pairs, offsets, tiles, width = p.sizes(
        "num_tasks", "rows", "cols", "pairs", "offsets", "tiles", "width"
    )
    T = p.dense_fixed("T", tasks)
    I = p.dense_variable("I", T, (rows, rows), "task_ptr", index)
    J = p.dense_variable("J", I, (pairs, pairs), "row_ptr", index)
    Offset, In = p.buffer("Offset", (T, I, J), index), p.buffer("In", (T, I, J), index)
    C, Q, CW = p.dense_fixed("C", spec.lanes), p.dense_fixed("Q", tiles), p.dense_fixed("CW", width)
    X = p.buffer("X", (p.dense_fixed("N", cols), CW), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("K", offsets), CW), spec.dtype)
    Y = p.buffer("Y", (T, I, CW), spec.accumulator)
    with p.iterate("rows_of_task", (T, I), "SS", ("t", "i")) as (t, i):
        with p.iterate("tiles_of_row", (Q,), "S", ("q",)) as (q,):
            sums = Block(p, spec, C)
            sums.clear()
            with p.iterate("pairs_of_row", (J,), "R", ("j",)) as (j,):
                for _, vector, c, place in sums.each("step"):
                    column = q * spec.tile + place
                    left, right = X[In[t, i, j], column], W[Offset[t, i, j], column]
                    vector[c] = vector[c] + cast(spec.accumulator, left) * cast(spec.accumulator, right)
            for _, vector, c, place in sums.each("after"):
                Y[t, i, q * spec.tile + place] = vector[c]
    return p.finish()


def depthwise_sums(spec: ConvSpec) -> Program:
    """W[slot]; a block is one row.

    Parameters: (num_tasks, num_parts, pairs, cols, rows, slots, tiles, width, part_ptr, pair_ptr, Slot, In, Out, X, G,
    W). Task t has parts, each of one offset, which fill the row Slot[part] of W; Slot names none twice. X is (cols,
    width), G (rows, width), W (slots, width) in the accumulation type, width = tiles * tile.
    """
    p = ProgramBuilder("depthwise_sums")
    index = spec.index_dtype
    tasks, parts, pairs, cols, rows, slots, tiles, width = p.sizes(
        "num_tasks", "num_parts", "pairs", "cols", "rows", "slots", "tiles", "width"
    )
    T = p.dense_fixed("T", tasks)
    S = p.dense_variable("S", T, (parts, parts), "part_ptr", index)
    N = p.dense_variable("N", S, (pairs, pairs), "pair_ptr", index)
    Slot = p.buffer("Slot", (T, S), index)
    In, Out = p.buffer("In", (T, S, N), index), p.buffer("Out", (T, S, N), index)
    C, Q, CW = p.dense_fixed("C", spec.lanes), p.dense_fixed("Q", tiles), p.dense_fixed("CW", width)
    X = p.buffer("X", (p.dense_fixed("NX", cols), CW), spec.dtype, strided=True)
    G = p.buffer("G", (p.dense_fixed("NG", rows), CW), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("K", slots), CW), spec.accumulator)
    with p.iterate("parts_of_task", (T, S), "SS", ("t", "s")) as (t, s):
        with p.iterate("tiles_of_row", (Q,), "S", ("q",)) as (q,):
            sums = Block(p, spec, C)
            sums.clear()
            with p.iterate("pairs_of_part", (N,), "R", ("n",)) as (n,):
                for _, vector, c, place in sums.each("step"):
                    column = q * spec.tile + place
                    left, right = X[In[t, s, n], column], G[Out[t, s, n], column]
                    vector[c] = vector[c] + cast(spec.accumulator, left) * cast(spec.accumulator, right)
            for _, vector, c, place in sums.each("after"):
                W[Slot[t, s], q * spec.tile + place] = vector[c]
    return p.finish()
