"""Matrices in tiles of columns, as blocks of sums read them: rows of one tile, then those of the next.

The rows of a tile of a large matrix are so far apart otherwise that they compete for the same places of the cache.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import cast
from ....compiler.language.program import Program
from ....frozen import dataclass


@dataclass(frozen=True)
class PackSpec:
    """tile: columns. by_columns: the matrices are stored transposed. dtype, out_dtype: of the two."""

    tile: int
    by_columns: bool = False
    dtype: str = "float32"
    out_dtype: str = "float32"


def pack_matrices(spec: PackSpec) -> Program:
    """P[m, q, f, c] = W[m, f, q * tile + c].

    Parameters: (matrices, tiles, in_features, out_features, W, P), out_features = tiles * tile; W is (matrices,
    in_features, out_features), or (matrices, out_features, in_features) where by columns.
    """
    p = ProgramBuilder("pack_matrices")
    matrices, tiles, rows, columns = p.sizes("matrices", "tiles", "in_features", "out_features")
    M, Q, F, CO = (
        p.dense_fixed(name, size) for name, size in (("M", matrices), ("Q", tiles), ("F", rows), ("CO", columns))
    )
    C = p.dense_fixed("C", spec.tile)
    W = p.buffer("W", (M, CO, F) if spec.by_columns else (M, F, CO), spec.dtype)
    P = p.buffer("P", (M, Q, F, C), spec.out_dtype)
    with p.iterate("tiles_of_matrices", (M, Q), "SS", ("m", "q")) as (m, q):
        if spec.by_columns:
            with p.iterate("columns", (C, F), "SS", ("c", "f")) as (c, f):
                P[m, q, f, c] = cast(spec.out_dtype, W[m, q * spec.tile + c, f])
        else:
            with p.iterate("rows", (F,), "S", ("f",)) as (f,):
                with p.iterate("row", (C,), "S", ("c",)) as (c,):
                    P[m, q, f, c] = cast(spec.out_dtype, W[m, f, q * spec.tile + c])
    return p.finish()
