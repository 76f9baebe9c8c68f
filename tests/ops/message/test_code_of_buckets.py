"""A program of rows decomposed into buckets of equal length, and grids side by side: one small program each."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.cache_row import cache_row
from gnn_sparse_backend.compiler.schedules.primitives.shared.horizontal import fuse_grids
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.compiler.transforms.compact import compact_parameters
from gnn_sparse_backend.compiler.transforms.decompose import decompose_format
from gnn_sparse_backend.compiler.transforms.dense_axes.share import share_axis
from gnn_sparse_backend.compiler.transforms.dense_axes.tile import tile_axis
from gnn_sparse_backend.compiler.transforms.format_rules import hyb_bucket_rule
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand

WIDTHS = (4, 1)


def weighted_mean(features: int = 6):
    operands = (
        Operand("column", (features,), "float32"),
        Operand("edge", (1,), "float32"),
        Operand("row", (1,), "float32"),
    )
    spec = AggregateSpec(parse("mul(mul(x0, x1), x2)"), operands, (features,), numbered=True, reduce="mean")
    program = tile_axis(compact_parameters(aggregate(spec, stage=False, grouped=False)), "K", ((features,),))
    return share_axis(program, "K_0", 4, 2)


def in_buckets():
    program = weighted_mean()
    rules = [hyb_bucket_rule(program, width, name=f"w{width}", tasks=None) for width in WIDTHS]
    return decompose_format(program, rules, copies=False, disjoint=True)


def arguments_of(lengths, seed: int):
    """(CSR arguments, those of the buckets): rows of one non-zero in the bucket of 1, of more in that of 4."""
    rng = np.random.default_rng(seed)
    m, n, nnz = len(lengths), 7, sum(lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices, numbers = rng.integers(0, n - 1, nnz), rng.permutation(nnz)
    values = {
        "X0": rng.standard_normal((n, 6)),
        "X1": rng.standard_normal((nnz, 1)),
        "X2": rng.standard_normal((m, 1)),
        "D": np.array(lengths),
        "C": np.full((m, 6), np.nan),
    }
    values["X0"][n - 1] = np.inf  # no edge leads there
    csr = {
        "m": m,
        "n": n,
        "nnz": nnz,
        "num_edges": nnz,
        "indptr": indptr,
        "indices": indices,
        "E": numbers,
        **values,
    }
    buckets = {"m": m, "n": n, "num_edges": nnz, **values}
    for width in WIDTHS:
        rows = [r for r in range(m) if (lengths[r] == 1) == (width == 1) and lengths[r]]
        slots = np.full((len(rows), width), -1)
        for b, r in enumerate(rows):
            slots[b, : lengths[r]] = np.arange(indptr[r], indptr[r + 1])
        there = slots >= 0
        buckets |= {
            f"count_w{width}": len(rows),
            f"Rows_w{width}": np.array(rows, int),
            f"indices_w{width}": np.where(there, indices[slots], -1).ravel(),
            f"E_w{width}": np.where(there, numbers[slots], -1).ravel(),
        }
    return csr, buckets


@pytest.mark.parametrize("lengths", [(3, 0, 1, 4, 2, 1, 0), (4, 2), (1, 1, 0, 1, 1, 1)], ids=["both", "wide", "narrow"])
@pytest.mark.parametrize("cached", [(), ("edges_tile_0_w4",)])
def test_buckets_give_what_rows_give(lengths, cached):
    """In its own terms, and as loops with all grids in one; a bucket may have no rows; rows without edges are not
    touched.
    """
    program = weighted_mean()
    schedule = team_schedule(4, *(cache_row(name, 4) for name in cached), fuse_grids(("C",)), teams=2)
    bucketed = in_buckets()
    loops = stage3(bucketed, schedule, serial=True)
    csr, buckets = arguments_of(lengths, 0)
    want = interpret(program, csr)["C"]
    want[[r for r, length in enumerate(lengths) if not length]] = np.nan
    np.testing.assert_allclose(interpret(bucketed, buckets)["C"], want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run_loops(loops, buckets)["C"], want, rtol=0, atol=1e-12)


def test_what_becomes_of_rows():
    text = in_buckets().script()
    assert (
        "J_w4 = p.sparse_fixed('J_w4', I_w4, (n, 4), 'indices_w4', 'int32', sorted=False, unique=False, padded=True)"
        in text
    )
    assert "X0[j_w4, k_lane * 2 + k_part] * X1[E_w4[i_w4, j_w4], 0] * X2[Rows_w4[i_w4], 0]" in text
    assert "C[Rows_w1[i_w1], f_lane * 2 + f_part] = Total_0_w1[f_lane, f_part]" in text
    assert "indptr" not in text


def test_grids_lie_side_by_side():
    text = stage3(in_buckets(), team_schedule(4, fuse_grids(("C",)), teams=2)).script()
    assert text.count('thread="blockIdx.x"') == 1 and text.count('thread="threadIdx.y"') == 2
    blocks = [
        "(count_w4 + T.int64(2) - T.int64(1)) // T.int64(2)",
        "(count_w1 + T.int64(2) - T.int64(1)) // T.int64(2)",
    ]
    assert f'T.thread_binding({" + ".join(blocks)}, thread="blockIdx.x")' in text
    assert f"< {blocks[0]}:" in text and f" - {blocks[0]}" in text


def test_grids_that_share_a_result():
    with pytest.raises(StageIError, match="iteration 'rows_w4' stores to 'C', and so may 'rows_w1' or read it"):
        stage3(in_buckets(), team_schedule(4, fuse_grids(), teams=2))
