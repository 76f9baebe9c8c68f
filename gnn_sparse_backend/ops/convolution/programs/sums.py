"""The gradient of a sparse convolution to its weights: sums of outer products, offset after offset.

    W[k] = sum over pairs (j, i) of k of X[j]^T G[i]

All pairs, offset after offset, are cut into shares of equal length, and a share's columns among tasks. A share adds up
the outer products of its pairs of each offset in a matrix of its own, a chunk of pairs at a time. The rows of a chunk
are copied side by side, in the accumulation type, and stay near while blocks of features by tiles of columns take
turns: where they are, those of a width that is a power of two would compete for the same places of the cache. The sums
of a block are registers for a whole chunk.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import as_expr, cast, minimum
from ....compiler.language.program import Program
from .spec import Block, ConvSpec

SIZES = (
    "num_tasks num_columns num_parts num_chunks visits pairs cols rows slots groups group_blocks in_features wide_in "
    "wide_out of_slot stride left_vectors left_rest"
).split()


def conv_sums(spec: ConvSpec) -> Program:
    """The program, for a block of features of X by a tile of columns of G.

    Parameters: (*SIZES, column_ptr, part_ptr, chunk_ptr, pair_ptr, FirstColumn, Slot, Start, In, Out, X, G, W). Task t
    has the column tiles FirstColumn[t], ... of each group, and parts, each of one offset, which fill these columns of
    the matrix Slot[part] of W; no two tasks fill the same. A chunk has pairs from Start on, as many as pair_ptr says. W
    is (slots, groups, in_features, of_slot), of_slot a multiple of the tile, in the accumulation type; X is (cols,
    groups * in_features), G (rows, groups * of_slot). Rows of a chunk lie ``stride`` elements apart, which is
    in_features and of_slot at least; pairs of a chunk times stride fit `spec.rows`. in_features are ``left_vectors``
    vectors of lanes and a rest.
    """
    p = ProgramBuilder("conv_sums")
    index = spec.index_dtype
    size = dict(zip(SIZES, p.sizes(*SIZES)))
    channels, of_slot, stride = size["in_features"], size["of_slot"], size["stride"]

    def ragged(name: str, parent, count: str, indptr: str):
        return p.dense_variable(name, parent, (size[count], size[count]), indptr, index)

    T = p.dense_fixed("T", size["num_tasks"])
    L, S = ragged("L", T, "num_columns", "column_ptr"), ragged("S", T, "num_parts", "part_ptr")
    U = ragged("U", S, "num_chunks", "chunk_ptr")
    N, Z = ragged("N", U, "visits", "pair_ptr"), p.dense_fixed("Z", size["pairs"])
    FirstColumn, Slot = p.buffer("FirstColumn", (T,), index), p.buffer("Slot", (T, S), index)
    Start = p.buffer("Start", (T, S, U), index)
    In, Out = p.buffer("In", (Z,), index), p.buffer("Out", (Z,), index)
    D, C, FI = p.dense_fixed("D", size["groups"]), p.dense_fixed("C", spec.lanes), p.dense_fixed("FI", channels)
    B, CW = p.dense_fixed("B", size["group_blocks"]), p.dense_fixed("CW", of_slot)
    WI, WO = p.dense_fixed("WI", size["wide_in"]), p.dense_fixed("WO", size["wide_out"])
    X = p.buffer("X", (p.dense_fixed("NX", size["cols"]), WI), spec.dtype, strided=True)
    G = p.buffer("G", (p.dense_fixed("NG", size["rows"]), WO), spec.dtype, strided=True)
    W = p.buffer("W", (p.dense_fixed("K", size["slots"]), D, FI, CW), spec.accumulator)
    R, V = p.dense_fixed("R", spec.rows), p.dense_fixed("V", size["left_vectors"])
    E = p.dense_fixed("E", size["left_rest"])
    with p.iterate("tasks", (T,), "S", ("t",)) as (t,):
        with p.iterate("parts", (S,), "S", ("s",)) as (s,):
            with p.iterate("clear", (D, FI, L), "SSS", ("d0", "f0", "l0")) as (d, f, l):
                with p.iterate("clear_tile", (C,), "S", ("c0",)) as (c,):
                    for first in range(0, spec.tile, spec.lanes):
                        W[Slot[t, s], d, f, (FirstColumn[t] + l) * spec.tile + first + c] = 0.0
            with p.iterate("chunks", (U, D), "RS", ("u", "d")) as (u, d):
                Left, Right = (p.local(name, (R,), spec.accumulator) for name in ("Left", "Right"))
                with p.iterate("copy", (N,), "S", ("n0",)) as (n,):
                    pair = Start[t, s, u] + n
                    with p.iterate("copy_left", (V,), "S", ("v1",)) as (v,):
                        with p.iterate("copy_vector", (C,), "S", ("c2",)) as (c,):
                            feature = v * spec.lanes + c
                            Left[n * stride + feature] = cast(spec.accumulator, X[In[pair], d * channels + feature])
                    with p.iterate("copy_rest", (E,), "S", ("e1",)) as (e,):
                        feature = as_expr(channels) - E.length + e
                        Left[n * stride + feature] = cast(spec.accumulator, X[In[pair], d * channels + feature])
                    with p.iterate("copy_right", (L,), "S", ("l1",)) as (l,):
                        with p.iterate("copy_tile", (C,), "S", ("c1",)) as (c,):
                            for first in range(0, spec.tile, spec.lanes):
                                column = (FirstColumn[t] + l) * spec.tile + first + c
                                Right[n * stride + column] = cast(spec.accumulator, G[Out[pair], d * of_slot + column])
                with p.iterate("tiles", (L, B), "SS", ("l", "b")) as (l, b):
                    column = (FirstColumn[t] + l) * spec.tile
                    at = [minimum(b * spec.block + m, as_expr(channels) - 1) for m in range(spec.block)]
                    sums = Block(p, spec, C)
                    # all of a block is read before any is stored: copies of the last feature start alike
                    for m, vector, c, place in sums.each("before"):
                        vector[c] = W[Slot[t, s], d, at[m], column + place]
                    with p.iterate("pairs_of_chunk", (N,), "R", ("n",)) as (n,):
                        for m, vector, c, place in sums.each("step"):
                            right = Right[n * stride + (column + place)]
                            vector[c] = vector[c] + Left[n * stride + at[m]] * right
                    for m, vector, c, place in sums.each("after"):
                        W[Slot[t, s], d, at[m], column + place] = vector[c]
    return p.finish()
