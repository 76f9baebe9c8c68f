"""The schedule of teams and what it is made of: axes shared out to lanes, sums across lanes. One tiny program each."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnn_sparse_backend.compiler.codegen import generate_cuda
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import select
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.cache_row import cache_row
from gnn_sparse_backend.compiler.schedules.primitives.cuda.side_by_side import visit_side_by_side
from gnn_sparse_backend.compiler.schedules.primitives.cuda.team_reduce import fold_across_lanes
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.compiler.transforms.compact import compact_parameters
from gnn_sparse_backend.compiler.transforms.dense_axes.load_ahead import load_ahead
from gnn_sparse_backend.compiler.transforms.dense_axes.share import share_axis, share_sum
from gnn_sparse_backend.compiler.transforms.dense_axes.tile import tile_axis
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.edge_map import EdgeMapSpec, edge_map
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from tests.compiler.message_programs import in_passes
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
        arguments = complete(program, rng, {"num_groups": 2, "n": 5, "num_edges": 3})
        whole = arguments[output].dtype.kind == "i"
        arguments[output] = np.full_like(arguments[output], -7 if whole else np.nan)
        want = interpret(program, arguments)[output]
        np.testing.assert_allclose(interpret(scheduled, arguments)[output], want, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            run_loops(stage3(scheduled, schedule, serial=True), arguments)[output], want, rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("features, lanes, part", [(8, 4, 2), (7, 4, 1), (12, 2, 4), (3, 4, 1), (6, 2, 4)])
def test_features_shared_out(features, lanes, part):
    """In one turn and in several; with lanes that have nothing in the last one, or at all; with a part that is cut
    off. Two groups of rows fill a block of two teams, and not one of three.
    """
    for teams in (2, 3):
        check(spmm(features), share_axis(spmm(features), "K_0", lanes, part), team_schedule(lanes, teams=teams), "C")


def test_teams_of_one_lane_are_the_threads():
    """A loop over one lane takes no dimension from them: TVM would then visit the first team of a block alone."""
    program = share_axis(spmm(1), "K_0", 1)
    check(spmm(1), program, team_schedule(1, teams=4), "C")
    source = generate_cuda(stage3(program, team_schedule(1, teams=4)), "sm_80")
    assert "threadIdx.x" in source and "__launch_bounds__(4)" in source


@pytest.mark.parametrize("features, lanes, part", [(8, 4, 2), (7, 4, 1), (6, 4, 4)])
def test_sums_shared_out(features, lanes, part):
    check(sddmm(features), share_sum(sddmm(features), "sum", lanes, part), team_schedule(lanes, teams=2), "O")


def test_non_zeros_shared_out():
    check(spmm(2), spmm(2), team_schedule(2, fold_across_lanes("edges_tile_0", 2), teams=2), "C")


def test_places_of_extremes_shared_out():
    """A row of no non-zeros keeps the fill, which says that it has none: lanes that took none say nothing."""
    program = spmm(2, reduce="max", keep=("unique",), fill=-1, propagate=True)
    check(program, program, team_schedule(2, fold_across_lanes("edges_tile_0", 2), teams=2), "Unique")


def test_edges_side_by_side():
    check(sddmm(3), sddmm(3), team_schedule(2, visit_side_by_side("edges", 2), teams=2), "O")


def weighted(features: int, **more):
    operands = (Operand("column", (features,), "float32"), Operand("edge", (1,), "float32"))
    spec = AggregateSpec(parse("mul(x0, x1)"), operands, (features,), **more)
    return tile_axis(compact_parameters(aggregate(spec, stage=False)), "K", ((features,),))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("features, lanes", [(8, 4), (6, 2), (3, 2)])
def test_edges_cached_in_stretches(features, lanes, numbered, reduce):
    """Rows of no stretch, of one that is not full, of several; lanes without a feature of their own load edges all the
    same.
    """
    program = weighted(features, numbered=numbered, reduce=reduce)
    check(
        program,
        share_axis(program, "K_0", lanes, 2),
        team_schedule(lanes, cache_row("edges_tile_0", lanes), teams=2),
        "C",
    )


def cached(program, lanes: int, name: str = "edges_tile_0", **more) -> str:
    return stage3(program, team_schedule(lanes, cache_row(name, lanes), teams=2), **more).script()


def test_what_is_cached_of_an_edge():
    """Its column, and its weight with the number that leads there; not the row of features, which is loaded by its
    lanes.
    """
    text = cached(share_axis(weighted(8, numbered=True), "K_0", 4, 2), 4, serial=True)
    fetched = [line.strip() for line in text.splitlines() if "_row[lane] = " in line]
    assert [line.partition("[")[0] for line in fetched] == ["indices_0_row", "X1_1_row"]
    assert all("T.min(stretch * T.int64(4) + lane," in line for line in fetched) and "E[" in fetched[1]
    used = text.partition("_one[T.int64(0)] = ")[2].partition("edges_0")[2].splitlines()
    assert not any(
        word in line for line in used for word in ('T.Cast("int64", indices[', "X1[") if "T.reads" not in line
    )


def test_a_shuffle_names_the_threads_of_its_team():
    """Teams of one warp are at different elements, and wait for nobody else."""
    assert "T.tvm_warp_shuffle(T.uint32(4294967295), " in cached(share_axis(weighted(64), "K_0", 32, 2), 32)
    narrow = cached(share_axis(weighted(8), "K_0", 4, 2), 4)
    assert re.search(r'T.uint32\(15\) << T.Cast\("uint32", g_thread \* T.int64\(4\) % T.int64\(32\)\),', narrow)


def test_what_a_condition_guards_is_loaded_under_it():
    """Behind the end of a row that is padded, the number of an edge leads nowhere."""
    p = ProgramBuilder("padded")
    m, n, z = p.sizes("m", "n", "z")
    I, N, Z, K = p.dense_fixed("I", m), p.dense_fixed("N", n), p.dense_fixed("Z", z), p.dense_fixed("K", 8)
    J = p.sparse_fixed("J", I, (n, 6), "slots", sorted=False, unique=False, padded=True)
    E, W = p.buffer("E", (I, J), "int32"), p.buffer("W", (Z,), "float32")
    X, C = p.buffer("X", (N, K), "float32"), p.buffer("C", (I, K), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        S = p.local("S", (K,), "float32")
        with p.iterate("zero", (K,), "S", ("k0",)) as (k,):
            S[k] = 0.0
        with p.iterate("edges", (J,), "R") as (j,):
            with p.iterate("add", (K,), "S") as (k,):
                S[k] = S[k] + W[E[i, j]] * X[j, k]
        with p.iterate("out", (K,), "S", ("k1",)) as (k,):
            C[i, k] = S[k]
    program = share_axis(p.finish(), "K", 4, 2)
    rng = np.random.default_rng(0)
    slots = np.array([0, 2, 1, 1, -1, -1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1])
    arguments = {
        "m": 3,
        "n": 4,
        "z": 5,
        "slots": slots,
        "E": np.where(slots < 0, -1, np.arange(18) % 5),
        "W": rng.standard_normal(5),
        "X": rng.standard_normal((4, 8)),
        "C": np.full((3, 8), np.nan),
    }
    arguments["X"][3] = np.inf
    want = interpret(program, arguments)["C"]
    assert np.isfinite(want).all()
    schedule = team_schedule(4, cache_row("edges", 4), teams=2)
    np.testing.assert_allclose(
        run_loops(stage3(program, schedule, serial=True), arguments)["C"], want, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("reduce, more", [("max", {"keep": ("column",)}), ("min", {"propagate": True, "empty": True})])
def test_loads_before_they_are_compared(reduce, more):
    program = weighted(6, reduce=reduce, **more)
    held = share_axis(load_ahead(program, "K_0"), "K_0", 4, 2)
    check(program, held, team_schedule(4, cache_row("edges_tile_0", 4), teams=2), "C")
    text = held.script()
    assert text.count("X0[j, ") == 1 and "X0_held_edges_0[k_lane, k_part]" in text
    assert "X1_held" not in text  # the same for all features


def test_what_is_not_loaded_in_any_case_is_not_held():
    p = ProgramBuilder("choice")
    m, n = p.sizes("m", "n")
    I, N, K = p.dense_fixed("I", m), p.dense_fixed("N", n), p.dense_fixed("K", 4)
    At, X, Y = p.buffer("At", (I,), "int32"), p.buffer("X", (N, K), "float32"), p.buffer("Y", (I, K), "float32")
    with p.iterate("rows", (I,), "R") as (i,):
        with p.iterate("add", (K,), "S") as (k,):
            Y[i, k] = select(At[i] < 0, 0.0, X[At[i], k])
    assert "held" not in load_ahead(p.finish(), "K").script()
    assert "held" not in load_ahead(weighted(6), "K_0").script()  # a sum chooses nothing


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


@pytest.mark.short(12)
@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: share_axis(spmm(8), "J", 4), "axis 'J' is not dense-fixed"),
        (lambda: share_axis(spmm(8), "K_0", 0), "0 lanes with parts of 1 hold nothing"),
        (
            lambda: share_axis(
                aggregate(AggregateSpec(parse("x0"), (Operand("column", (8,), "float32"),), (8,))), "K", 4
            ),
            "iteration 'edges' does not visit axis 'K' alone",
        ),
        (lambda: share_sum(spmm(8), "edges_tile_0", 4), "is not over one static dense reduction axis"),
        (
            lambda: fold_across_lanes("edges_tile_0", 3)(lower(spmm(2))),
            "3 lanes are not a power of two",
        ),
        (
            lambda: stage3(share_axis(spmm(8), "K_0", 4), team_schedule(4, teams=2, shared=("Total_0",))),
            "2 teams of a block would wait",
        ),
        (
            lambda: visit_side_by_side("edges_tile_0", 4)(lower(spmm(2))),
            "is not over one spatial axis",
        ),
        (
            lambda: visit_side_by_side("edges_zero_0", 4)(lower(spmm(2))),
            "stores to 'Total_0', which outlives",
        ),
        (
            lambda: stage3(in_passes(spmm(8), "a", "b"), team_schedule(4, teams=2)),
            "all lanes would store to 'C' in iteration 'out_0_a'",
        ),
        (
            lambda: stage3(share_axis(spmm(8), "K_0", 4), team_schedule(2, teams=4)),
            "threadIdx.x of aggregate has 2 and 4 elements; teams have 2 lanes",
        ),
        (lambda: cache_row("edges_tile_0", 3)(lower(spmm(2))), "3 lanes are not a power of two"),
        (lambda: cache_row("rows", 4)(lower(spmm(2))), "is not nested in another"),
    ],
    ids=range(12),
)
def test_refusals(make, words):
    with pytest.raises(StageIError, match=re.escape(words)):
        make()


def test_a_team_of_one_may_do_what_lanes_may_not():
    stage3(in_passes(spmm(8), "a", "b"), team_schedule(1, teams=128))


def test_compact_parameters_have_no_strides():
    assert "strided" in spmm(8).script() and "strided" not in compact_parameters(spmm(8)).script()
