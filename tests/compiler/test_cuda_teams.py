"""The schedule of teams and what it is made of: axes shared out to lanes, sums across lanes. One tiny program each."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.coordinate.axes import StageIError
from gnn_sparse_backend.compiler.coordinate.builder import ProgramBuilder
from gnn_sparse_backend.compiler.coordinate.interpret import interpret
from gnn_sparse_backend.compiler.lower import lower
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.compiler.programs.edge_map import EdgeMapSpec, edge_map
from gnn_sparse_backend.compiler.programs.message import parse
from gnn_sparse_backend.compiler.programs.operands import Operand
from gnn_sparse_backend.compiler.schedule.cuda_teams import CudaTeams
from gnn_sparse_backend.compiler.schedule.primitives.across import sum_across_lanes
from gnn_sparse_backend.compiler.schedule.primitives.side_by_side import visit_side_by_side
from gnn_sparse_backend.compiler.transform.compact import compact_parameters
from gnn_sparse_backend.compiler.transform.share import share_axis, share_sum
from gnn_sparse_backend.compiler.transform.tile import tile_axis
from tests.compiler.structures import complete


def spmm(features: int, **more):
    spec = AggregateSpec(parse("x0"), (Operand("column", (features,), "float32"),), (features,), **more)
    return tile_axis(aggregate(spec, stage=False), "K", ((features,),))


def sddmm(features: int):
    operands = tuple(Operand(at, (features,), "float32") for at in ("row", "column"))
    return edge_map(EdgeMapSpec(parse("mul(x0, x1)"), operands, (features,), (True,)))


def check(program, scheduled, schedule, output: str) -> None:
    """The program shared out, and its serial loops, against the program as it was; outputs are poisoned before."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        arguments = complete(program, rng, {"num_groups": 2, "n": 5})
        arguments[output] = np.full_like(arguments[output], np.nan)
        want = interpret(program, arguments)[output]
        np.testing.assert_allclose(interpret(scheduled, arguments)[output], want, rtol=0, atol=1e-12)
        np.testing.assert_allclose(run_loops(stage3(scheduled, schedule, serial=True), arguments)[output], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("features, lanes, part", [(8, 4, 2), (7, 4, 1), (12, 2, 4), (3, 4, 1), (6, 2, 4)])
def test_features_shared_out(features, lanes, part):
    """In one turn and in several; with lanes that have nothing in the last one, or at all; with a part that is cut off."""
    check(spmm(features), share_axis(spmm(features), "K_0", lanes, part), CudaTeams(lanes, 2), "C")


@pytest.mark.parametrize("features, lanes, part", [(8, 4, 2), (7, 4, 1), (6, 4, 4)])
def test_sums_shared_out(features, lanes, part):
    check(sddmm(features), share_sum(sddmm(features), "sum", lanes, part), CudaTeams(lanes, 2), "O")


def test_non_zeros_shared_out():
    check(spmm(2), spmm(2), CudaTeams(2, 2, across=("edges_tile_0",)), "C")


def test_edges_side_by_side():
    check(sddmm(3), sddmm(3), CudaTeams(2, 2, side_by_side=("edges",)), "O")


def test_what_share_axis_does():
    text = share_axis(spmm(8), "K_0", 2, 2).script()
    assert "Total_0 = p.local('Total_0', (K_0_lane, K_0_turn, K_0_part), 'float32')" in text
    assert "X0[j, k_turn * 4 + k_lane * 2 + k_part]" in text and "p.where" not in text
    # the condition is the same for all of a part, so that loading one stays one instruction
    assert "p.where(k_turn * 4 + k_lane * 2 + 0 < 6)" in share_axis(spmm(6), "K_0", 2, 2).script()


def test_buffers_that_lanes_read_of_each_other_stay_whole():
    p = ProgramBuilder("neighbours")
    m = p.size("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", 4)
    X, Y = p.buffer("X", (I, K), "float32"), p.buffer("Y", (I, K), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Own, All = p.local("Own", (K,), "float32"), p.local("All", (K,), "float32")
        with p.iterate("load", (K,), "S", ("a",)) as (k,):
            Own[k] = X[i, k]
        with p.iterate("load_all", (K,), "S", ("b",)) as (k,):
            All[k] = X[i, k]
        with p.iterate("out", (K,), "S", ("c",)) as (k,):
            Y[i, k] = Own[k] + All[3 - k]
    text = share_axis(p.finish(), "K", 4).script()
    assert "p.local('Own', (K_lane,)" in text and "p.local('All', (K,)" in text
    assert "p.iterate('load_all', (K,)" in text and "p.iterate('load', (K_lane,)" in text


@pytest.mark.parametrize("make, words", [
    (lambda: share_axis(spmm(8), "J", 4), "axis 'J' is not dense-fixed"),
    (lambda: share_axis(spmm(8), "K_0", 0), "0 lanes with parts of 1 hold nothing"),
    (lambda: share_axis(aggregate(AggregateSpec(parse("x0"), (Operand("column", (8,), "float32"),), (8,))), "K", 4),
     "iteration 'edges' does not visit axis 'K' alone"),
    (lambda: share_sum(spmm(8), "edges_tile_0", 4), "is not over one static dense reduction axis"),
    (lambda: sum_across_lanes(lower(spmm(2)), spmm(2).iteration("edges_tile_0"), 3), "3 lanes are not a power of two"),
    (lambda: stage3(share_axis(spmm(8), "K_0", 4), CudaTeams(4, 2, shared=("Total_0",))), "2 teams of a block would wait"),
    (lambda: visit_side_by_side(lower(spmm(2)), spmm(2).iteration("edges_tile_0"), 4), "is not over one spatial axis"),
    (lambda: visit_side_by_side(lower(spmm(2)), spmm(2).iteration("edges_zero_0"), 4), "stores to 'Total_0', which outlives"),
    (lambda: stage3(spmm(8, continues=True), CudaTeams(4, 2)), "all lanes would store to 'C' in iteration 'out_0'"),
], ids=range(9))  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(StageIError, match=re.escape(words)):
        make()


def test_a_team_of_one_may_do_what_lanes_may_not():
    stage3(spmm(8, continues=True), CudaTeams(1, 128))


def test_compact_parameters_have_no_strides():
    assert "strided" in spmm(8).script() and "strided" not in compact_parameters(spmm(8)).script()
