"""Relational gather-matmul on Tensor Cores: sums over the edges of (row, relation) pairs, multiplied where they are.

    O[p] = (sum over the edges e of pair p of A[e] * X[j(e)]) W[r(p)]

(RGMS; Ye et al., SparseTIR, section 4.4.) A team gathers the rows of the edges of up to 16 pairs of one relation, or of
several times 16, feature by feature side by side, adds them up in registers, and leaves the sums in shared memory, from
where they are loaded as fragments. All relations are one launch. What rows have of several relations is added up
afterwards, in the order of the relations: nothing is atomic.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, cast
from ....compiler.language.program import Program
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import refuses
from ...core.tiles.matrices import Matrices
from ...grouped.programs.grouped_tiles import Fragments, TilesSpec
from .owned_rows import stride_of

SHARED = "Sums"


@dataclass(frozen=True)
class RgmsTilesSpec:
    """What is static. weighted: there is a number A for each edge, in float32. blocks: on the diagonal of W, which is
    zero elsewhere, of in_features x out_features each; the rest as in a `TilesSpec`."""

    in_features: int
    out_features: int
    tiles: int = 1
    weighted: bool = False
    blocks: int = 1
    dtype: str = "float16"
    index_dtype: str = "int32"
    by_columns: bool = False


def rgms_tiles(spec: RgmsTilesSpec) -> Program:
    """The program.

    Parameters: (num_panels, pairs, cols, nnz, relations, pair_ptr, indptr, indices, Count, Relation, [A], X, W, O).
    Panel t has the Count[t] pairs from pair_ptr[t] on, all of Relation[t]; X is (cols, blocks * F_in), W (relations,
    blocks, F_in, F_out) or by columns, O (pairs, blocks, F_out). Every pair has edges.
    """
    reason = refuses(spec.in_features, spec.out_features, spec.dtype)
    if reason:
        raise StageIError(f"rgms_tiles: {reason}")
    tiles = TilesSpec(
        spec.in_features, spec.out_features, spec.tiles, (False, False), spec.dtype, spec.index_dtype, spec.by_columns
    )
    stride = stride_of(spec.blocks * spec.in_features, spec.dtype)
    p = ProgramBuilder("rgms_tiles")
    panels, pairs, cols, nnz, relations = p.sizes("num_panels", "pairs", "cols", "nnz", "relations")
    T = p.dense_fixed("T", panels)
    I = p.dense_variable("I", T, (pairs, pairs), "pair_ptr", spec.index_dtype)
    J = p.sparse_variable("J", I, (cols, nnz), ("indptr", "indices"), spec.index_dtype, sorted=False, unique=False)
    Count, Relation = (p.buffer(name, (T,), spec.index_dtype) for name in ("Count", "Relation"))
    FI, D = p.dense_fixed("FI", spec.blocks * spec.in_features), p.dense_fixed("D", spec.blocks)
    FB, FO = p.dense_fixed("FB", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (T, I, J), "float32") if spec.weighted else None
    X = p.buffer("X", (p.dense_fixed("NX", cols), FI), spec.dtype)
    W = Matrices(p, (p.dense_fixed("NW", relations), D), FB, FO, spec.by_columns, spec.dtype)
    O = p.buffer("O", (T, I, D, FO), spec.dtype)
    kept = p.dense_fixed("Kept", tiles.rows * stride)
    fragments = Fragments(p, tiles)
    with p.iterate("panels", (T,), "S", ("t",)) as (t,):
        Sums = p.local(SHARED, (kept,), spec.dtype)
        with p.iterate("gather", (I,), "S", ("i",)) as (i,):
            Edge = p.local("Edge", (FI,), "float32")
            with p.iterate("zero", (FI,), "S", ("fz",)) as (f,):
                Edge[f] = 0.0
            with p.iterate("edges", (J,), "R", ("j",)) as (j,):
                with p.iterate("add", (FI,), "S", ("fa",)) as (f,):
                    value = cast("float32", X[j, f])
                    Edge[f] = Edge[f] + (value if A is None else A[t, i, j] * value)
            with p.iterate("keep", (FI,), "S", ("fk",)) as (f,):
                Sums[i * stride + f] = cast(spec.dtype, Edge[f])

        with p.iterate("blocks", (D,), "S", ("d",)) as (d,):

            def store(row: Expr, column: Expr, value: Expr) -> None:
                O[t, row, d, column] = value

            fragments.product(
                lambda row, column: Sums[row * stride + d * spec.in_features + column],
                W[Relation[t], d],
                store,
                lambda row: row < Count[t],
            )
    return p.finish()
