"""O = (V^T U) at the blocks of a matrix, on the tile registers of AMX, for operands as a linear layer has them.

    first, for each stretch of tokens:  W = U[tokens] in pairs, as a tile has the right factor;  Z = V[tokens]^T
    for each row of blocks, block, and tile of it:
        C = 0;  for each stretch of tokens: C += Z[columns, tokens] W[tokens, rows];  O[block] = C

What a block stores has its columns one by one, so columns are the rows of a tile.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import cast
from ....compiler.language.program import Program
from .tiled import NARROW, TOKENS, WIDE, TiledSpec


def tiled_sddmm(spec: TiledSpec) -> Program:
    """The program. Local buffer C is what stays in tile registers.

    Parameters: (stretches, mb, nb, nnzb, m, n, over_m, over_n, tokens, half, wide_m, wide_n, indptr, indices, U
    (tokens, m), V (tokens, n), O (nnzb, columns, rows); W (half, wide_m), Q (half, wide_n), Z (n, tokens), written
    over), of a matrix of mb x nb blocks. tokens are stretches of `TOKENS`, half is half of them, wide_m and wide_n are
    twice m and n, over_m and over_n a sixteenth.
    """
    p = ProgramBuilder("composed_tiled_sddmm")
    stretches, mb, nb, nnzb, m, n, over_m, over_n, tokens, half, wide_m, wide_n = p.sizes(
        "stretches", "mb", "nb", "nnzb", "m", "n", "over_m", "over_n", "tokens", "half", "wide_m", "wide_n"
    )
    (height, depth), index = spec.piece.block, spec.index_dtype
    across, down = (WIDE if side % WIDE == 0 else NARROW for side in (height, depth))
    T, IO = p.dense_fixed("T", stretches), p.dense_fixed("IO", mb)
    JO = p.sparse_variable("JO", IO, (nb, nnzb), ("indptr", "indices"), index)
    JI, II = p.dense_fixed("JI", depth), p.dense_fixed("II", height)
    F, M, N = p.dense_fixed("F", tokens), p.dense_fixed("M", m), p.dense_fixed("N", n)
    F2, M2, N2 = p.dense_fixed("F2", half), p.dense_fixed("M2", wide_m), p.dense_fixed("N2", wide_n)
    BM, BN = p.dense_fixed("BM", over_m), p.dense_fixed("BN", over_n)
    H, E, TWO = p.dense_fixed("H", TOKENS // 2), p.dense_fixed("E", NARROW), p.dense_fixed("TWO", 2)
    PD, PA = p.dense_fixed("PD", depth // down), p.dense_fixed("PA", height // across)
    L, A, K = p.dense_fixed("L", down), p.dense_fixed("A", across), p.dense_fixed("K", TOKENS)
    U, V = p.buffer("U", (F, M), "bfloat16"), p.buffer("V", (F, N), "bfloat16")
    O = p.buffer("O", (IO, JO, JI, II), "bfloat16")
    W, Q = p.buffer("W", (F2, M2), "bfloat16"), p.buffer("Q", (F2, N2), "bfloat16")
    Z = p.buffer("Z", (N, F), "bfloat16")
    with p.iterate("prepare", (T,), "S", ("t0",)) as (t,):
        for name, over, source, target in (("u", BM, U, W), ("v", BN, V, Q)):
            with p.iterate(f"pairs_{name}", (over, H, E), "SSS", (f"s_{name}", f"h_{name}", f"e_{name}")) as (s, h, e):
                for q in (0, 1):
                    target[t * (TOKENS // 2) + h, s * (2 * NARROW) + 2 * e + q] = source[
                        t * TOKENS + 2 * h + q, s * NARROW + e
                    ]
        with p.iterate("each", (BN,), "S", ("s",)) as (s,):
            with p.iterate("turned", (H, E, TWO), "SSS", ("h", "e", "q")) as (h, e, q):
                Z[s * NARROW + e, t * TOKENS + 2 * h + q] = Q[t * (TOKENS // 2) + h, s * (2 * NARROW) + 2 * e + q]
    with p.iterate("tasks", (IO, JO), "SS") as (io, jo):
        D = p.local("D", (L, A), "float32")
        with p.iterate("parts", (PD, PA), "SS", ("pd", "pa")) as (pd, pa):
            C = p.local("C", (L, A), "float32")
            with p.iterate("zero", (L, A), "SS", ("l0", "v3")) as (l, v):
                C[l, v] = 0.0
            with p.iterate("stretch", (T,), "R", ("t",)) as (t,):
                with p.iterate("product", (L, A, K), "SSR", ("l1", "v4", "k")) as (l, v, k):
                    left = Z[jo * depth + pd * down + l, t * TOKENS + k]
                    right = W[t * (TOKENS // 2) + k // 2, 2 * (io * height + pa * across) + 2 * v + k % 2]
                    C[l, v] = C[l, v] + cast("float32", left) * cast("float32", right)
            with p.iterate("drain", (L, A), "SS", ("l2", "v5")) as (l, v):
                D[l, v] = C[l, v]
            with p.iterate("finish", (L,), "S", ("l3",)) as (l,), p.iterate("write", (A,), "S", ("v6",)) as (v,):
                O[io, jo, pd * down + l, pa * across + v] = cast("bfloat16", D[l, v])
    return p.finish()
