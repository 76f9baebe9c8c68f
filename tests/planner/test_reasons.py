"""What `gsb.explain` says of a plan on a CPU: the rules that fired, with their numbers, in words that a table's terms
are among.
"""

import re
from dataclasses import replace

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.planner import cost, machine
from gnn_sparse_backend.planner.candidates import candidates, reasons, rule_plan, trials
from gnn_sparse_backend.planner.choose import choose
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from gnn_sparse_backend.planner.cpu.slices import SlicePlan
from gnn_sparse_backend.planner.cuda import cost as cuda_cost
from gnn_sparse_backend.planner.cuda.blocks import BlockPlan
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan
from gnn_sparse_backend.planner.cuda.chunks import ChunkPlan
from gnn_sparse_backend.planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from gnn_sparse_backend.planner.problem import Problem
from gnn_sparse_backend.planner.words import about, size

LARGE = Problem("sum:column", 233_000, 233_000, 23_000_000, 64, "float32", 2, 5_000)


def caches_of(monkeypatch, private, last):
    """A machine with caches of these sizes, a core's own and the last level."""
    monkeypatch.setattr(machine, "private_cache_bytes", lambda: private)
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: last)


@pytest.fixture
def caches(monkeypatch):
    caches_of(monkeypatch, 512 << 10, 32 << 20)


@pytest.mark.parametrize(
    "fields, said",
    [
        (
            {},
            "about 1,500,000,000 multiply-adds (a non-zero as 8 at least, and a row as 32 more), 65,536 or more: the 2 "
            "threads share it, in 32",
        ),
        ({"threads": 1}, "PyTorch has one thread here (torch.set_num_threads): it takes all rows."),
        (
            {"rows": 90, "nnz": 900},
            "about 60,000 multiply-adds (a non-zero as 8 at least, and a row as 32 more), fewer than 65,536, from "
            "which on",
        ),
        (
            {"rows": 1000, "nnz": 5000, "features": 1},
            "counts as about 72,000 multiply-adds (a non-zero as 8 at least, and a row as 32 more)",
        ),
        ({"rows": 1}, "There is one row, which one thread takes."),
        (
            {},
            "have 256 bytes, about 60 MB in all, more than half of a core's own cache (524 kB): they are fetched 16 "
            "edges ahead.",
        ),
        (
            {"cols": 1000},
            "about 260 kB in all, no more than half of a core's own cache (524 kB): nothing is fetched ahead.",
        ),
        (
            {"features": 4},
            "about 3.7 MB in all, no more than 1/5 of the last-level cache (33.6 MB), what counts for rows of less "
            "than 192",
        ),
        (
            {"features": 4, "kind": "max:column"},
            "what counts for rows of less than 128 bytes: nothing is fetched ahead",
        ),
        (
            {"features": 32},
            "about 30 MB in all, more than 1/5 of the last-level cache (33.6 MB), what counts for rows of less than "
            "192 bytes: they",
        ),
        (
            {"kind": "map:column,row", "cols": 1500},
            "about 380 kB in all, no more than a core's own cache (524 kB): nothing",
        ),
        (
            {"rows": 10_000, "features": 4},
            "4 features are at most 8, and rows have about 2,300 non-zeros on average, 24 or more",
        ),
        (
            {"nnz": 1_700_000, "typical": 96, "features": 4},
            "and half of all non-zeros are in rows of 96 and more, 24 or more: a vector takes",
        ),
        (
            {"nnz": 700_000, "features": 4},
            "about 3.0 non-zeros on average, 6 at most: each is added to its row in memory (scattered)",
        ),
        (
            {"reach": 233_000},
            "gather from about 60 MB, more than 1/8 of the last-level cache (33.6 MB): columns are cut into 16 "
            "partitions",
        ),
        (
            {"reach": 233_000, "features": 8},
            "about 7.5 MB in all, more than 1/5 of the last-level cache (33.6 MB), what counts",
        ),
        (
            {"longest": 2_000_000},
            "about 2,000,000 of about 23,000,000 non-zeros: long rows are cut into parts of 359,375",
        ),
    ],
)
def test_the_rules_that_fired_are_said(fields, said, caches):
    problem = replace(LARGE, **fields)
    assert said in " ".join(reasons(problem, rule_plan(problem)))


def test_slices_of_a_socket_s_machine_are_said(monkeypatch):
    caches_of(monkeypatch, 2 << 20, 480 << 20)
    problem = replace(LARGE, features=32, reach=233_000)
    text = " ".join(reasons(problem, rule_plan(problem)))
    assert (
        "more than half of a core's own cache (2.1 MB; the last level, 503 MB, is a whole socket's): columns are cut "
        "into 16 partitions" in text
    )
    assert "no more than a core's own cache (2.1 MB) in each partition: nothing is fetched ahead" in text


def test_half_of_a_core_s_own_cache_is_said_where_there_is_no_larger_one(monkeypatch):
    caches_of(monkeypatch, 1 << 20, 1 << 20)
    problem = replace(LARGE, features=4)
    assert "more than half of a core's own cache (1.05 MB): they are fetched 16" in " ".join(
        reasons(problem, rule_plan(problem))
    )


def test_long_rows_of_edge_maps_are_left_to_the_processor(caches):
    for features, said in (
        (256, "they are fetched 8 edges ahead"),
        (512, "but rows of more than 1,024 bytes the processor fetches ahead"),
    ):
        problem = replace(LARGE, features=features, kind="map:column,row")
        assert said in " ".join(reasons(problem, rule_plan(problem)))


def test_what_did_not_fire_is_not_said(caches):
    text = " ".join(reasons(LARGE, rule_plan(LARGE)))
    assert not re.search("lanes|scattered|partitions|parts", text)
    assert "fetched" not in " ".join(reasons(replace(LARGE, kind="sum:edge"), rule_plan(LARGE)))


@pytest.mark.parametrize(
    "count, said", [(0, "0"), (17, "17"), (149, "150"), (65_536, "66,000"), (128_000_123, "130,000,000")]
)
def test_about(count, said):
    assert about(count) == said


@pytest.mark.parametrize(
    "count, said",
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (25_600, "25.6 kB"),
        (999_600, "1,000 kB"),
        (51.2e6, "51.2 MB"),
        (7.127e12, "7,130 GB"),
    ],
)
def test_sizes(count, said):
    assert size(count) == said


@pytest.mark.parametrize("gpu", [False, True], ids=["CPU", "GPU"])
def test_every_term_of_the_table_is_told(gpu, plans, graph, request):
    if gpu:
        request.getfixturevalue("serial_gpu")
    assert set(cost.MEANINGS) == set(DEFAULT_UNITS)
    text = str(gsb.explain(graph, "sum", 4))
    table, legend = text[text.index("candidates") :].rsplit("what the terms count: ", 1)
    cells = [line.split("│")[3] for line in table.splitlines() if "│" in line]
    found = set(re.findall("[a-z_]+", " ".join(cells)))
    told = {part.split(":")[0] for part in " ".join(legend.split()).split("; ")}
    assert found == told and len(told) >= 3 and told <= set(cuda_cost.MEANINGS if gpu else cost.MEANINGS)


CPU_PLANS = (
    RowPlan(4, 8, "rows", in_lanes=True),
    ScatteredPlan(4),
    PartitionPlan(4, 8, partitions=2),
    PartPlan(4, part=9),
    SlicePlan(4, width=8),
)
TEAM, LANE = TeamPlan("sm_90", True, 8), LanePlan("sm_90", 8)
GPU_PLANS = (
    BlockPlan(TEAM),
    TeamPartPlan(LANE, 9),
    TEAM,
    BucketPlan("sm_90", 4),
    BucketPlan("sm_90", 4, 2),
    ChunkPlan(LANE),
    ChunkPlan(TeamPartPlan(LANE, 9)),
)


@pytest.mark.parametrize("plan", [*CPU_PLANS, *GPU_PLANS])
def test_the_words_of_plans_are_those_that_are_told(plan):
    words = plan.legend()
    for text in re.split(", (?:else )?", str(plan)):
        assert any(word in text for word in words), text


def test_nothing_that_was_not_measured_takes_a_column(plans, graph):
    text = str(gsb.explain(graph, "sum", 4))
    assert "measured, µs" not in text and "nothing was measured on this structure: gsb.precompile" in text


def test_a_plan_that_the_model_cannot_tell_from_others_says_how_many_would_be_measured():
    """As many as `gsb.precompile` then measures."""
    edge_map = replace(LARGE, kind="map:column,row")
    others = len(trials(edge_map)) - 1
    assert others > 1 and len(candidates(edge_map)) == 1
    (said,) = [reason for reason in choose(edge_map, str).reasons if "the plan of the rules" in reason]
    assert said.endswith(f"cannot tell it from {others} others that gsb.precompile or `gsb tune` would measure.")
    alone = replace(edge_map, rows=1, cols=10, nnz=5, features=1, threads=1)
    assert len(trials(alone)) == 1
    assert any(reason.endswith("and there is no other.") for reason in choose(alone, str).reasons)
