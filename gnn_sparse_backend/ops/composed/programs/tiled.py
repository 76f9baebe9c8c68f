"""Y = X A^T for a matrix A of blocks, on the tile registers of AMX: rows of X and Y are tokens.

    first, for each block:  W = its columns in pairs, as a tile has the right factor
    for each stretch of tokens, and rows of a tile in a row of blocks:
        C = 0;  for each block of the row: C += X[tokens, columns of the block] W[block];  Y = C, and a bias

A row of X is a row of a tile as it lies. What a block stores has its columns one by one.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import cast
from ....compiler.language.program import Program
from ....formats.composed.spec import FormatSpec
from ....frozen import dataclass

TOKENS = 32
"""Tokens of a stretch: two tiles, so that what is loaded of a block is multiplied twice."""
WIDE, NARROW = 32, 16
"""Rows of a block that are multiplied at a time."""


@dataclass(frozen=True)
class TiledSpec:
    """piece: of BSR, with sides that are multiples of 16. bias: rows begin with a number each."""

    piece: FormatSpec
    index_dtype: str = "int32"
    bias: bool = False

    def __post_init__(self) -> None:
        if not self.piece.is_bsr or any(side % NARROW for side in self.piece.block):
            raise StageIError(f"composed_tiled: tiles do not divide {self.piece}")

    @property
    def width(self) -> int:
        return WIDE if self.piece.block[0] % WIDE == 0 else NARROW


def tiled(spec: TiledSpec) -> Program:
    """The program. Local buffer C is what stays in tile registers.

    Parameters: (stretches, mb, nb, nnzb, m, n, tokens, First, indptr, indices, A (nnzb, columns, rows), X (tokens, n),
    Y (tokens, m), B (m,) where there is a bias), of a matrix of mb x nb blocks. First is the first token of each
    stretch; two stretches may have tokens in common.
    """
    p = ProgramBuilder("composed_tiled")
    stretches, mb, nb, nnzb, m, n, tokens = p.sizes("stretches", "mb", "nb", "nnzb", "m", "n", "tokens")
    (height, depth), width, index = spec.piece.block, spec.width, spec.index_dtype
    T, K = p.dense_fixed("T", stretches), p.dense_fixed("K", tokens)
    IO, N, M = p.dense_fixed("IO", mb), p.dense_fixed("N", n), p.dense_fixed("M", m)
    JO = p.sparse_variable("JO", IO, (nb, nnzb), ("indptr", "indices"), index)
    JI, II = p.dense_fixed("JI", depth), p.dense_fixed("II", height)
    P, H, E = p.dense_fixed("P", height // width), p.dense_fixed("H", depth // 2), p.dense_fixed("E", 2 * width)
    L, V = p.dense_fixed("L", TOKENS), p.dense_fixed("V", width)
    First = p.buffer("First", (T,), index)
    A = p.buffer("A", (IO, JO, JI, II), "bfloat16")
    X, Y = p.buffer("X", (K, N), "bfloat16"), p.buffer("Y", (K, M), "bfloat16")
    B = p.buffer("B", (M,), "bfloat16") if spec.bias else None
    W = p.buffer("W", (IO, JO, P, H, E), "bfloat16")
    with p.iterate("pack", (IO,), "S", ("io0",)) as (io,), p.iterate("packed", (JO,), "S", ("jo0",)) as (jo,):
        with p.iterate("pairs", (P, H, V), "SSS", ("p0", "h", "v0")) as (part, h, v):
            for q in (0, 1):
                W[io, jo, part, h, 2 * v + q] = A[io, jo, 2 * h + q, part * width + v]
    with p.iterate("tasks", (T,), "S") as (t,):
        D = p.local("D", (L, V), "float32")
        with p.iterate("rows", (IO, P), "SS", ("io", "part")) as (io, part):
            C = p.local("C", (L, V), "float32")
            row = io * height + part * width
            with p.iterate("zero", (L, V), "SS", ("l0", "v1")) as (l, v):
                C[l, v] = 0.0
            with p.iterate("blocks", (JO,), "R", ("jo",)) as (jo,):
                with p.iterate("product", (L, V, JI), "SSR", ("l1", "v2", "ji")) as (l, v, k):
                    left = X[First[t] + l, jo * depth + k]
                    right = W[io, jo, part, k // 2, 2 * v + k % 2]
                    C[l, v] = C[l, v] + cast("float32", left) * cast("float32", right)
            with p.iterate("drain", (L, V), "SS", ("l2", "v3")) as (l, v):
                D[l, v] = C[l, v]
            with p.iterate("finish", (L,), "S", ("l3",)) as (l,), p.iterate("write", (V,), "S", ("v4",)) as (v,):
                value = D[l, v] if B is None else D[l, v] + cast("float32", B[row + v])
                Y[First[t] + l, row + v] = cast("bfloat16", value)
    return p.finish()
