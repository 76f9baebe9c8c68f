"""Rules and costs of plans for a GPU by hand, what is said of them, and records of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gnn_sparse_backend.planner.candidates import candidates, reasons
from gnn_sparse_backend.planner.choose import choose
from gnn_sparse_backend.planner.cost import compulsory_bytes, predict
from gnn_sparse_backend.planner.cuda.blocks import BlockPlan
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan, bucket_widths
from gnn_sparse_backend.planner.cuda.cost import UNITS, default_units
from gnn_sparse_backend.planner.cuda.gpu import Gpu, describe_gpu
from gnn_sparse_backend.planner.cuda.plan import WARP, Shares, shares
from gnn_sparse_backend.planner.cuda.rows import LanePlan, TeamPlan
from gnn_sparse_backend.planner.database import PlanDatabase, PlanDatabaseWarning
from gnn_sparse_backend.planner.problem import CudaProblem
from tests.ops.serial_gpu import GPU

LARGE = CudaProblem(
    "sum:column", 100_000, 100_000, 2_000_000, 64, "float32", 1, longest=900, arch="sm_90", cache=50 << 20
)


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"features": 4, "rows": 300_000}, "chunks of 32 consecutive non-zeros"),
        (
            {"features": 4, "rows": 300_000, "longest": 70_000},
            "has a piece in each of 2,187 chunks or more, more than 2,048: the pieces",
        ),
        ({}, "rows lie in buckets of equal length of up to 256 slots"),
        ({"features": 2, "longest": 100}, "8 lanes share the non-zeros of a row"),
        ({"kind": "map:column,row", "features": 16, "rows": 10_000}, "32 lanes share the non-zeros of a row"),
        ({"nnz": 1_000_000, "longest": 5000}, "cut into parts of 512, which a second pass adds up"),
        ({"nnz": 1_000_000}, "1,000,000 edges are fewer than 1,048,576, from which on buckets or chunks of rows pay"),
        ({"longest": 150}, "less than 8 times the mean of 20.0"),
        (
            {"longest": 150, "features": 8},
            "2 lanes share the 8 features of a row, 4 neighbouring ones at a time; several rows",
        ),
        ({"rows": 10_000}, "a lane loads each edge of a stretch of 32 for all"),
        ({"kind": "max:column"}, "fewer than 32: each lane loads the edges by itself"),
        (
            {"slots": 8_000_000, "in_bsr": 8_000_000, "in_sr_bcrs": 7_600_000},
            "blocks of 16 x 8 in the format BSR. It stores 8,000,000 elements, of which 25.0% are non-zeros: 4.0 for "
            "each non-zero, 8 at most. "
            "SR-BCRS, without the columns of a block that none of its 16 rows has, would save 5.0% of them. It would "
            "have to save more than 10%",
        ),
        (
            {"slots": 8_000_000, "in_bsr": 10_000_000, "in_sr_bcrs": 8_000_000, "dtype": "bfloat16"},
            "blocks of 16 x 16 in the format SR-BCRS. It stores 8,000,000 elements, of which 25.0% are non-zeros: 4.0 "
            "for each non-zero, 8 at "
            "most. BSR, with the columns between those that 16 rows have, would store 5.0 for each, of which SR-BCRS "
            "saves 20.0%: more than 10%",
        ),
        (
            {"slots": 15_600_000, "in_bsr": 17_000_000, "in_sr_bcrs": 15_600_000},
            "BSR, with the columns between those that 16 rows have, would store 8.5 for each, more than 8.",
        ),
        (
            {"in_sr_bcrs": 25_000_000},
            "Not by blocks on Tensor Cores: SR-BCRS would store 12.5 elements for each non-zero, more than 8, and",
        ),
        (
            {"in_bsr": 9_000_000, "in_sr_bcrs": 9_000_000, "kind": "sum:column,edge"},
            "Not by blocks on Tensor Cores: edges repeat",
        ),
        ({}, "Not by blocks on Tensor Cores: they take ten bits of the fraction of a float32"),
        ({"dtype": "float64"}, "Not by blocks on Tensor Cores: they take float16, bfloat16, float32, not float64."),
        ({"arch": "sm_75"}, "Not by blocks on Tensor Cores: sm_75 has not got their instructions."),
        (
            {"nnz": 1_000_000, "longest": 5000},
            "Not by blocks on Tensor Cores: 1,000,000 edges are fewer than 1,048,576",
        ),
        ({"features": 7}, "Not by blocks on Tensor Cores: 7 features are fewer than 8, the width of a tile."),
        (
            {"kind": "mean:column,edge", "features": 31},
            "31 features are fewer than 32, from which on it pays to lay out numbers in blocks.",
        ),
    ],
)
def test_the_rules_that_fired_are_said(fields, said):
    problem = replace(LARGE, **fields)
    assert said in " ".join(reasons(problem, candidates(problem)[0]))


@pytest.mark.parametrize(
    "width, itemsize, most, lanes, part",
    [
        (64, 4, WARP, 16, 4),  # 16 bytes each, and no lane without any
        (256, 4, WARP, WARP, 4),
        (64, 4, 8, 8, 4),
        (64, 8, WARP, WARP, 2),
        (64, 2, WARP, 16, 4),  # TVM has no longer vectors
        (6, 4, WARP, 4, 2),
        (5, 4, WARP, 8, 1),
        (1, 4, WARP, 1, 1),
    ],
)
def test_a_row_has_no_more_lanes_than_vectors(width, itemsize, most, lanes, part):
    assert shares(width, itemsize, most) == Shares(lanes, part)


def test_heavy_rows_come_first():
    assert bucket_widths(8) == (8, 4, 2, 1) and bucket_widths(1) == (1,)


def test_costs_by_hand():
    units = default_units(describe_gpu("H", "sm_90", 132, 50 << 20, 1_980_000, 2_619_000, 5120))
    assert 1 / units["stream"] == pytest.approx(3.35e12, rel=0.01)
    plain, cached = TeamPlan("sm_90"), TeamPlan("sm_90", cached=True)
    large = replace(LARGE, cols=10_000_000)  # which no cache holds
    moved = plain.counts(large)
    assert (
        moved["near"] + moved["far"] == pytest.approx(2_000_000 * 256, rel=1e-9) and moved["far"] > 0.9 * moved["near"]
    )
    assert moved["stream"] == 4 * (100_001 + 2_000_000) + 100_000 * 256 and moved["turn"] == 900
    small = replace(LARGE, rows=100, cols=100, nnz=1000)
    assert plain.counts(small)["far"] < 0.01 * plain.counts(small)["near"]
    costs = {plan: predict(LARGE, plan, units) for plan in candidates(LARGE)}
    for plan, cost in costs.items():
        assert set(cost.terms) <= set(UNITS) and cost.seconds > 0, str(plan)
    assert predict(LARGE, cached, units).terms["turn"] < predict(LARGE, plain, units).terms["turn"]
    buckets = BucketPlan("sm_90", 64)
    assert predict(LARGE, buckets, units).terms["turn"] < predict(LARGE, cached, units).terms["turn"]
    in_blocks = BlockPlan(plain).counts(replace(large, slots=4_000_000))
    assert in_blocks["near"] + in_blocks["far"] == pytest.approx(250_000 * 256)
    assert compulsory_bytes(LARGE) * units["stream"] < min(cost.seconds for cost in costs.values())


def test_the_name_of_a_gpu_and_what_is_guessed():
    assert Gpu("H200", "sm_90", 132, 50 << 20).machine == "H200, sm_90, 132 multiprocessors, cache 51200K"
    assert describe_gpu("A100", "sm_80", 108).source == "guessed from sm_80"
    assert describe_gpu("X", "sm_130", 1).bandwidth > 0


def test_records_of_a_gpu_are_checked(plans):
    problem, plan = replace(LARGE, slots=3), LanePlan("sm_90", 8)
    on = plans.on("H, sm_90", default_units(GPU))
    on.add(problem, "f", {plan: 2e-6, BlockPlan(TeamPlan("sm_90")): 1e-6})
    on.set_units(dict.fromkeys(UNITS, 1e-9))
    again = PlanDatabase(plans.path)
    assert again.verify() == [] and again.units == plans.units
    assert again.on("H, sm_90", {}).units["near"] == 1e-9 and again.on("H, sm_90", {}).calibrated
    assert choose(LARGE, lambda: "f", again.on("H, sm_90", {})).plan == BlockPlan(TeamPlan("sm_90"))
    assert dict(again.records()[0].seconds)[plan] == 2e-6
    for place, field, value in ((1, "lanes", 3), (0, "cached", 1), (1, "arch", 90), (1, "strategy", "luck")):
        content = json.loads(plans.path.read_text())
        found = content["records"][0]["seconds"][place]["plan"]
        found.get("rest", found)[field] = value
        other = PlanDatabase(plans.path.with_name(f"{field}.json"))
        other.path.write_text(json.dumps(content))
        assert len(other.verify()) == 1 and str(value) in other.verify()[0], field
        with pytest.warns(PlanDatabaseWarning, match="record 0"):
            assert other.on("H, sm_90", {}).find(LARGE, lambda: "f") is None
