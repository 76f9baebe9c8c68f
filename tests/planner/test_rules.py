"""The rules of plans, and which plans an operator supports."""

from dataclasses import replace

import pytest

from gnn_sparse_backend.ops.core.executable import executable_of
from gnn_sparse_backend.ops.message.executables import final_plan
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec
from gnn_sparse_backend.ops.message.programs.edge_map import EdgeMapSpec
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.ops.message.schedules_cpu import refuses_host_lanes
from gnn_sparse_backend.planner import machine
from gnn_sparse_backend.planner.candidates import rule_plan
from gnn_sparse_backend.planner.cpu import slices, spmm
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from gnn_sparse_backend.planner.cpu.slices import SlicePlan
from gnn_sparse_backend.planner.cpu.spmm import group_count
from gnn_sparse_backend.planner.machine import threads_sleep as how_threads_wait
from gnn_sparse_backend.planner.problem import Problem

LANES, PARTITIONS, PARTS = RowPlan(4, in_lanes=True), PartitionPlan(4, partitions=2), PartPlan(4, part=9)
SCATTERED, SLICED, ROWS = ScatteredPlan(4), SlicePlan(4, width=32), RowPlan(4)


def plan_spmm(rows, cols, nnz, features, itemsize, threads, longest=0, reach=None, summed=True, edges=False, typical=0):
    """reach: None for no operand at the columns."""
    places = ["column"] * (reach is not None) + ["edge"] * edges
    kind = f"{'sum' if summed else 'max'}:{','.join(places)}"
    dtype = {2: "float16", 4: "float32"}[itemsize]
    return rule_plan(Problem(kind, rows, cols, nnz, features, dtype, threads, reach or 0, longest, typical))


def aggregation(width=1, dtype="float32", message="x0", **spec):
    return AggregateSpec(parse(message), (Operand("column", (width,), dtype),), (width,), dtype, **spec)


HEADS = AggregateSpec(
    parse("mul(x0, x1)"), (Operand("column", (3, 2), "float32"), Operand("edge", (3, 1), "float32")), (3, 2)
)
DOT = EdgeMapSpec(
    parse("mul(x0, x1)"), (Operand("row", (4,), "float32"), Operand("column", (4,), "float32")), (4,), (True,)
)


def refused(plan, spec):
    """Why a plan is given up for a spec."""
    lanes = refuses_host_lanes(spec) if getattr(plan, "in_lanes", False) else None
    return lanes or executable_of(spec, plan).refuses(spec, plan)


@pytest.mark.parametrize(
    "plan, spec, reason",
    [
        (LANES, aggregation(reduce="max", keep=("number",), numbered=True), "which of equal messages came last"),
        (LANES, aggregation(reduce="max", keep=("unique",)), "which of equal messages came last"),
        (LANES, HEADS, "weights of heads"),
        (LANES, aggregation(512), "512 features are chains enough"),
        (SCATTERED, aggregation(reduce="max"), "sums and means, not a max"),
        (SCATTERED, aggregation(dtype="bfloat16"), "rounded to bfloat16 after each edge"),
        (SCATTERED, HEADS, "weights of heads"),
        (PARTS, aggregation(reduce="max", keep=("number",), numbered=True), "found in whole rows"),
        (PARTITIONS, aggregation(dtype="bfloat16"), "rounded to bfloat16"),
        (PARTITIONS, aggregation(dtype="float16", reduce="mean"), "rounded to float16"),
        (PARTS, aggregation(dtype="float16", message="stored(x0)"), "not stored in float16"),
        (SLICED, aggregation(32), "no slices of 32"),
        (SLICED, aggregation(65, "bfloat16"), "odd number of bfloat16"),
        (SlicePlan(4, width=2), HEADS, "weights of heads"),
    ],
)
@pytest.mark.short(14)
def test_what_is_refused(plan, spec, reason):
    assert reason in refused(plan, spec) and final_plan(plan, spec) == ROWS


@pytest.mark.parametrize(
    "plan, spec",
    [
        (SCATTERED, aggregation()),
        (ScatteredPlan(4, 4, "rows"), aggregation(8, "float64", reduce="mean")),
        (LANES, aggregation()),
        (LANES, aggregation(8, "bfloat16", reduce="mean")),
        (LANES, aggregation(reduce="max")),
        (LANES, aggregation(reduce="min", keep=("unique",), propagate=True)),
        (PARTITIONS, HEADS),
        (PARTITIONS, aggregation(dtype="bfloat16", reduce="max")),
        (PARTITIONS, aggregation(reduce="max", keep=("unique",))),
        (PARTS, aggregation(dtype="bfloat16")),
        (RowPlan(4, prefetch=8), DOT),
        (PartitionPlan(4, 4, "rows", True, partitions=3), aggregation(2)),
        (SLICED, aggregation(64)),
        (SLICED, aggregation(33, reduce="max")),
        (SLICED, aggregation(65, "float16")),
    ],
)
def test_what_is_supported_stays(plan, spec):
    assert final_plan(plan, spec) == plan


def test_only_what_is_refused_is_given_up():
    plan = PartitionPlan(4, 8, "rows", True, partitions=2)
    assert final_plan(plan, aggregation(dtype="bfloat16")) == plan.otherwise == RowPlan(4, 8, "rows", True)
    assert final_plan(plan, aggregation(reduce="max", keep=("column",))) == replace(plan, in_lanes=False)


def caches_of(monkeypatch, last, private):
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: last)
    monkeypatch.setattr(machine, "private_cache_bytes", lambda: private)


@pytest.fixture
def cache(monkeypatch):
    caches_of(monkeypatch, 32 << 20, 512 << 10)


def partitions(plan):
    return plan.partitions if isinstance(plan, PartitionPlan) else 1


def width(plan):
    return plan.width if isinstance(plan, SlicePlan) else 0


def planned(rows=233_000, nnz=23_000_000, features=32, threads=2, longest=0, reach=233_000, edges=False):
    return plan_spmm(rows, rows, nnz, features, 4, threads, longest, reach, edges=edges)


def test_partitions_where_a_far_operand_is_gathered_often(cache):
    assert [partitions(planned(features=f)) for f in (4, 16, 32, 64, 128)] == [1, 4, 8, 16, 16]
    assert partitions(planned(nnz=3_000_000)) == 1  # short rows
    assert partitions(planned(reach=5_000)) == 1  # neighbours share columns
    assert partitions(planned(reach=None)) == 1
    assert planned(edges=True).partitions == 8


def test_features_are_sliced_where_a_slice_fits_the_last_level_and_rows_do_not(cache):
    def of(rows=120_000, nnz=1_500_000, features=256, reach=120_000, **others):
        return planned(rows, nnz, features, reach=reach, **others)

    assert [width(of(features=f)) for f in (64, 127, 128, 256, 1000)] == [0, 0, 32, 32, 32]
    assert of() == SlicePlan(32, 16, width=32) and of(threads=1) == SlicePlan(1, 16, width=32)
    assert width(of(edges=True)) == 32
    assert width(of(nnz=900_000)) == 0  # gathered too seldom
    assert width(of(reach=9_000)) == 0 and width(of(reach=60_000)) == 32  # neighbours share columns
    assert width(of(rows=140_000, nnz=2_000_000)) == 0  # not even a slice is held
    assert width(of(rows=20_000, nnz=400_000, features=128)) == 0  # all of it is nearly held
    assert [partitions(of(rows=40_000, reach=40_000, features=f)) for f in (256, 64)] == [1, 4]
    assert width(of(reach=None)) == 0 and width(of(longest=1_000_000)) == 0
    assert slices.slice_width(Problem("sum:column", 10**5, 10**5, 10**6, 256, "float64", 2)) == 16
    assert slices.slice_width(Problem("sum:column", 10**5, 10**5, 10**6, 256, "bfloat16", 2)) == 64
    assert slices.slice_width(Problem("sum:column,column", 10**5, 10**5, 10**6, 256, "float32", 2)) == 0


def test_slices_are_half_of_a_core_s_own_cache_where_the_last_level_is_a_socket_s(monkeypatch):
    caches_of(monkeypatch, 480 << 20, 2 << 20)
    plans = [planned(nnz=114_000_000, features=f) for f in (1, 4, 32, 64, 128, 512)]
    assert [partitions(plan) for plan in plans] == [1, 4, 32, 64, 64, 1]
    # 64 slices of the columns do not fit where rows have 512 features: the features are sliced instead
    assert [width(plan) for plan in plans] == [0, 0, 0, 0, 0, 32]
    assert [plan.prefetch for plan in plans] == [0, 0, 0, 0, 0, 16]
    assert [partitions(planned(nnz=114_000_000, features=f, edges=True)) for f in (4, 16, 32, 128)] == [1, 1, 32, 64]


@pytest.mark.parametrize(
    "last, private", [(480 << 20, 2 << 20), (32 << 20, 512 << 10)], ids=["of a socket", "of a few cores"]
)
@pytest.mark.parametrize("summed, shortest", [(True, 48), (False, 32)])
def test_short_rows_are_left_to_the_processor_unless_they_come_from_memory(
    monkeypatch, summed, shortest, last, private
):
    caches_of(monkeypatch, last, private)
    for features in (1, 4, 16, shortest - 1, shortest):
        held = last // spmm.HELD_PARTS // (4 * features)  # columns whose rows the last level holds
        for cols, from_memory in ((held, False), (held + 1, True)):
            plan = plan_spmm(cols, cols, 3 * cols, features, 4, 2, summed=summed)
            assert bool(plan.prefetch) == (from_memory or features == shortest), (features, from_memory)
    # where the last level is no larger than a core's own, that counts
    caches_of(monkeypatch, private, private)
    cols = private // 2 // 64
    assert [plan_spmm(cols + more, cols + more, 3 * cols, 16, 4, 2, summed=summed).prefetch for more in (0, 1)] == [
        0,
        16,
    ]


@pytest.mark.parametrize("summed", [True, False])
def test_of_half_types_all_but_the_narrowest_rows_are_fetched_ahead(monkeypatch, summed):
    caches_of(monkeypatch, 32 << 20, 512 << 10)
    for features, ahead in ((8, 0), (15, 0), (16, 16), (32, 16), (512, 16)):
        cols = (256 << 10) // (2 * features)
        plans = [plan_spmm(cols + more, cols + more, 3 * cols, features, 2, 2, summed=summed) for more in (0, 1)]
        assert [plan.prefetch for plan in plans] == [0, ahead], features


def test_lanes_where_rows_are_long_and_narrow(cache):
    def lanes(mean, itemsize=4, **kind):
        plans = {
            features: plan_spmm(10_000, 10_000, 10_000 * mean, features, itemsize, 2, **kind)
            for features in range(1, 65)
        }
        return [features for features, plan in plans.items() if getattr(plan, "in_lanes", False)]

    # in whole vectors; the neighbours of one feature are a vector themselves, and of two alone two halves of one
    assert (lanes(24), lanes(24, edges=True), lanes(24, summed=False)) == ([1, 2, 4, 8], [1, 4, 8], [1, 4, 8, 16, 32])
    assert lanes(24, 2, summed=False) == [1, 4, 8]
    assert lanes(23) == lanes(23, edges=True) == lanes(23, summed=False) == []
    # what counts is the row of a typical non-zero, where it is known: a few long rows may have most of them
    assert (lanes(7, typical=24), lanes(7, typical=23), lanes(30, typical=23)) == ([1, 2, 4, 8], [], [])
    # and how many non-zeros of a row a partition has
    pieces = [planned(rows=400_000, nnz=400_000 * mean, features=8, reach=400_000) for mean in (95, 96)]
    assert [(plan.partitions, plan.in_lanes) for plan in pieces] == [(4, False), (4, True)]


def test_threads_where_the_ends_of_rows_and_indices_are_work_too():
    def groups(rows, nnz, features, threads=2):
        return group_count(nnz, rows, features, threads)

    # the sizes of CiteSeer and Cora: two threads have half of what takes one of them 20 microseconds
    assert groups(3_327, 9_104, 1) > 1 and groups(2_708, 10_556, 1) > 1
    assert groups(3_327, 9_104, 1) == groups(3_327, 9_104, 8) <= groups(3_327, 9_104, 9), (
        "a vector of features is one instruction"
    )
    assert groups(3_000, 0, 1) > 1 == groups(30, 3_000, 1), (
        "rows without non-zeros are gone through, and three microseconds are not shared"
    )
    assert groups(3_327, 9_104, 1, threads=1) == groups(1, 10**6, 64) == 1
    assert {groups(10**5, 10**6, features) for features in (1, 64)} == {32}


def test_scattered_sums_where_rows_are_short_and_narrow():
    def scattered(*about, **fields):
        return isinstance(planned(*about, **fields), ScatteredPlan)

    assert [scattered(nnz=700_000, features=f) for f in (1, 4, 8, 9)] == [True, True, True, False]
    assert not scattered(nnz=2_000_000, features=1)  # rows of more than a handful
    assert not scattered(rows=9_000, nnz=30_000, features=1)  # too few to keep a row for each
    assert not scattered(nnz=700_000, features=1, longest=100_000)  # most of a thread's work is one chain
    wide = Problem("sum:column", 233_000, 233_000, 700_000, 1, "float32", 2, 233_000)
    found = [rule_plan(replace(wide, **other)) for other in ({}, {"kind": "max:column"}, {"dtype": "bfloat16"})]
    assert [isinstance(plan, ScatteredPlan) for plan in found] == [True, False, False]


def test_parts_where_one_row_is_more_than_a_share():
    assert planned(longest=2_000_000).part == 23_000_000 // 64
    assert not isinstance(planned(longest=20_000), PartPlan)
    assert not isinstance(planned(rows=10, nnz=3_000, longest=3_000), PartPlan)  # too little to share


@pytest.mark.parametrize("rows, nnz", [(100, 2_000), (100, 80_000), (233_000, 23_000_000)])
def test_the_order_of_additions_is_the_same_for_any_number_of_threads(rows, nnz):
    for features in (1, 8, 64):
        plans = {replace(planned(rows, nnz, features, threads, nnz // 2), groups=1) for threads in (1, 2, 64)}
        assert len(plans) == 1


def test_gathers_run_as_many_bytes_ahead(cache):
    widths = 1, 32, 128, 512, 4096
    assert [
        rule_plan(Problem("map:row,column", 50_000, 50_000, 10**6, f, "float32", 2)).prefetch
        for f in (*widths, 256, 257)
    ] == [
        0,
        16,
        16,
        0,
        0,
        8,
        0,
    ]
    assert [planned(60_000, 10**6, f, reach=None).prefetch for f in widths] == [0, 16, 16, 8, 2]
    assert [planned(60_000, 10**6, f, reach=1_000).prefetch for f in widths] == [0, 16, 16, 8, 2], (
        "near each other or not"
    )
    assert [planned(500, 10**5, f, reach=None).prefetch for f in widths] == [0, 0, 0, 8, 2], (
        "all of it stays in the cache"
    )


def test_threads_that_sleep_want_more_work(monkeypatch):
    """Rules for 40,000 edges with 32 features, some 1,400,000 multiply-adds with the rows, and for half of them."""
    more, less = (plan_spmm(n, n, 10 * n, 32, 4, 2, reach=n) for n in (4000, 2000))
    assert more.groups > 1 and less.groups > 1
    monkeypatch.setattr(machine, "threads_sleep", lambda: True)
    more, less = (plan_spmm(n, n, 10 * n, 32, 4, 2, reach=n) for n in (4000, 2000))
    assert more.groups > 1 and less.groups == 1


@pytest.mark.parametrize(
    "policy, spins, sleep",
    [
        (None, None, False),
        ("passive", None, True),
        (" PASSIVE ", None, True),
        ("active", None, False),
        ("active", "0", True),
        ("passive", "1000", False),
        ("passive", "", True),
    ],
)
def test_how_threads_wait(monkeypatch, policy, spins, sleep):
    for name, value in (("OMP_WAIT_POLICY", policy), ("GOMP_SPINCOUNT", spins)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert how_threads_wait.__wrapped__() is sleep
