"""The gradient of a sparse convolution to its weights: sums of outer products, offset after offset.

    W[k] = sum over pairs (j, i) of k of X[j]^T G[i]

All pairs, offset after offset, are cut into shares of equal length. A share adds up the outer products of its pairs of
each offset in a matrix of its own, a chunk of pairs at a time, whose rows stay near while blocks of features by tiles
of columns take turns: the sums of a block are registers for a whole chunk.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import as_expr, cast, minimum
from ....compiler.language.program import Program
from .spec import Block, ConvSpec


def conv_sums(spec: ConvSpec) -> Program:
    """The program, for a block of features of X by a tile of columns of G.

    Parameters: (num_tasks, num_parts, num_chunks, pairs, cols, rows, slots, groups, group_blocks, group_tiles,
    in_features, wide_in, wide_out, of_slot, stride, left_vectors, left_rest, part_ptr, chunk_ptr, pair_ptr, Slot, In,
    Out, X, G, W). Task t has parts, each of one offset, which fill the matrix Slot[part] of W; Slot names none twice. W
    is (slots, groups, in_features, of_slot), of_slot = group_tiles * tile, in the accumulation type; X is (cols, groups
    * in_features), G (rows, groups * of_slot). Rows of a chunk lie ``stride`` elements apart, which is in_features and
    of_slot at least; pairs of a chunk times stride fit `spec.rows`. in_features are ``left_vectors`` vectors of lanes
    and a rest.
    """
    p = ProgramBuilder("conv_sums")
    index = spec.index_dtype
    (
        tasks,
        parts,
        chunks,
        pairs,
        cols,
        rows,
        slots,
        groups,
        high,
        wide,
        channels,
        wide_in,
        wide_out,
        of_slot,
        stride,
        vectors,
        rest,
    ) = p.sizes(
        "num_tasks",
        "num_parts",
        "num_chunks",
        "pairs",
        "cols",
        "rows",
        "slots",
        "groups",
        "group_blocks",
        "group_tiles",
        "in_features",
        "wide_in",
        "wide_out",
        "of_slot",
        "stride",
        "left_vectors",
        "left_rest",
    )
    T = p.dense_fixed("T", tasks)
    S = p.dense_variable("S", T, (parts, parts), "part_ptr", index)
    U = p.dense_variable("U", S, (chunks, chunks), "chunk_ptr", index)
    N = p.dense_variable("N", U, (pairs, pairs), "pair_ptr", index)
    Slot = p.buffer("Slot", (T, S), index)
    In, Out = p.buffer("In", (T, S, U, N), index), p.buffer("Out", (T, S, U, N), index)
    D, C, FI = p.dense_fixed("D", groups), p.dense_fixed("C", spec.lanes), p.dense_fixed("FI", channels)
    B, Q, CW = p.dense_fixed("B", high), p.dense_fixed("Q", wide), p.dense_fixed("CW", of_slot)
    X = p.buffer("X", (p.dense_fixed("NX", cols), p.dense_fixed("WI", wide_in)), spec.dtype, strided=True)
    G = p.buffer("G", (p.dense_fixed("NG", rows), p.dense_fixed("WO", wide_out)), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("K", slots), D, FI, CW), spec.accumulator)
    R, V, E = p.dense_fixed("R", spec.rows), p.dense_fixed("V", vectors), p.dense_fixed("E", rest)
    with p.iterate("tasks", (T,), "S", ("t",)) as (t,):
        with p.iterate("parts", (S,), "S", ("s",)) as (s,):
            with p.iterate("clear", (D, FI, Q), "SSS", ("d0", "f0", "q0")) as (d, f, q):
                with p.iterate("clear_tile", (C,), "S", ("c0",)) as (c,):
                    for first in range(0, spec.tile, spec.lanes):
                        W[Slot[t, s], d, f, q * spec.tile + first + c] = 0.0
            with p.iterate("chunks", (U, D), "RS", ("u", "d")) as (u, d):
                Left, Right = (p.local(name, (R,), spec.accumulator) for name in ("Left", "Right"))
                with p.iterate("copy", (N,), "S", ("n0",)) as (n,):
                    with p.iterate("copy_left", (V,), "S", ("v1",)) as (v,):
                        with p.iterate("copy_vector", (C,), "S", ("c2",)) as (c,):
                            column = v * spec.lanes + c
                            Left[n * stride + column] = cast(spec.accumulator, X[In[t, s, u, n], d * channels + column])
                    with p.iterate("copy_rest", (E,), "S", ("e1",)) as (e,):
                        column = as_expr(channels) - E.length + e
                        Left[n * stride + column] = cast(spec.accumulator, X[In[t, s, u, n], d * channels + column])
                    with p.iterate("copy_right", (Q,), "S", ("q1",)) as (q,):
                        with p.iterate("copy_tile", (C,), "S", ("c1",)) as (c,):
                            for first in range(0, spec.tile, spec.lanes):
                                column = q * spec.tile + first + c
                                Right[n * stride + column] = cast(
                                    spec.accumulator, G[Out[t, s, u, n], d * of_slot + column]
                                )
                with p.iterate("tiles", (Q, B), "SS", ("q", "b")) as (q, b):
                    at = [minimum(b * spec.block + m, as_expr(channels) - 1) for m in range(spec.block)]
                    sums = Block(p, spec, C)
                    # all of a block is read before any is stored: copies of the last feature start alike
                    for m, vector, c, place in sums.each("before"):
                        vector[c] = W[Slot[t, s], d, at[m], q * spec.tile + place]
                    with p.iterate("pairs_of_chunk", (N,), "R", ("n",)) as (n,):
                        for m, vector, c, place in sums.each("step"):
                            right = Right[n * stride + (q * spec.tile + place)]
                            vector[c] = vector[c] + Left[n * stride + at[m]] * right
                    for m, vector, c, place in sums.each("after"):
                        W[Slot[t, s], d, at[m], q * spec.tile + place] = vector[c]
    return p.finish()


__all__ = ["conv_sums"]
