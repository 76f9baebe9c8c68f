"""Measured plans outlive the process, and nothing in the file can stop a program."""

import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gnn_sparse_backend.compiler.language.types import FLOATS
from gnn_sparse_backend.planner import machine
from gnn_sparse_backend.planner.composed import ComposedPlan, FormatsPlan
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.products import ConvPlan, RelationalPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from gnn_sparse_backend.planner.cpu.slices import SlicePlan
from gnn_sparse_backend.planner.cuda.blocks import BlockPlan
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan
from gnn_sparse_backend.planner.cuda.chunks import ChunkPlan
from gnn_sparse_backend.planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from gnn_sparse_backend.planner.database import PlanDatabase, PlanDatabaseWarning
from gnn_sparse_backend.planner.plan import STRATEGIES
from gnn_sparse_backend.planner.problem import Problem

PROBLEM = Problem("sum:column", 100, 90, 1000, 64, "float32", 2, 90)
SECONDS = {RowPlan(32): 3e-5, RowPlan(1): 2e-5, PartPlan(32, 8, "rows", True, part=500): 4e-5}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "plans.json"


def open_(path, **fields):
    return PlanDatabase(path, **{"machine": "here", "versions": {"package": "1"}, **fields})


def find(database, problem=PROBLEM, fingerprint="f"):
    return database.find(problem, lambda: fingerprint)


def test_the_next_process_finds_what_this_one_measured(path):
    open_(path).add(PROBLEM, "f", SECONDS)
    record = find(open_(path))
    assert record.best == RowPlan(1)
    assert dict(record.seconds) == SECONDS
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize(
    "field, value",
    [
        ("kind", "max:column"),
        ("features", 32),
        ("dtype", "float64"),
        ("dtype", "bfloat16"),
        ("threads", 1),
        ("nnz", 1001),
        ("rows", 99),
        ("cols", 91),
    ],
)
def test_another_problem_has_no_record(path, field, value):
    database = open_(path)
    database.add(PROBLEM, "f", SECONDS)
    assert find(database, replace(PROBLEM, **{field: value})) is None
    assert find(database, fingerprint="g") is None
    assert find(database, replace(PROBLEM, reach=5)) is not None  # follows from the structure


def test_a_structure_is_read_only_where_one_of_its_size_is_known(path):
    def read():
        raise AssertionError("the whole structure was read")

    database = open_(path)
    assert database.find(PROBLEM, read) is None
    database.add(PROBLEM, "f", SECONDS)
    with pytest.raises(AssertionError):
        database.find(PROBLEM, read)


def test_measuring_again_replaces(path):
    database = open_(path)
    database.add(PROBLEM, "f", {RowPlan(8): 1e-6})
    slower = {plan: 2 * seconds for plan, seconds in SECONDS.items()}
    for seconds in (SECONDS, slower):
        assert database.add(PROBLEM, "f", seconds).best == RowPlan(1)
        assert dict(find(open_(path)).seconds) == seconds
    assert len(database.records()) == 1


def test_what_was_cut_short_does_not_replace_more(path):
    first, second = open_(path), open_(path)
    assert find(first) is None and find(second) is None  # both have read the file
    first.add(PROBLEM, "f", SECONDS)
    assert first.add(PROBLEM, "f", {RowPlan(8): 1e-6}).best == RowPlan(1)
    second.add(PROBLEM, "f", {RowPlan(8): 1e-6})  # which does not know of the other's
    assert find(first).best == RowPlan(1) and find(open_(path)).best == RowPlan(1)


@pytest.mark.short(2)
@pytest.mark.parametrize("other", [{"machine": "there"}, {"versions": {"package": "2"}}])
def test_other_machines_and_versions_are_kept_and_not_used(path, other):
    open_(path).add(PROBLEM, "f", SECONDS)
    open_(path).set_units({**DEFAULT_UNITS, "edge": 5.0})
    stranger = open_(path, **other)
    assert find(stranger) is None
    assert stranger.calibrated == ("versions" in other)
    stranger.add(PROBLEM, "f", {RowPlan(4): 1.0})
    assert find(open_(path)).best == RowPlan(1)
    assert find(open_(path, **other)).best == RowPlan(4)
    assert [stranger.usable(record) for record in stranger.records()] == [False, True]


def test_constants_of_the_machine(path):
    database = open_(path)
    assert not database.calibrated and database.units == DEFAULT_UNITS
    database.set_units({**DEFAULT_UNITS, "edge": 7e-9})
    again = open_(path)
    assert again.calibrated and again.units["edge"] == 7e-9
    with pytest.raises(ValueError, match="edge.*nan"):
        database.set_units({**DEFAULT_UNITS, "edge": float("nan")})


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"format": 5, "records": []}', b'{"format": 1']
)
def test_a_corrupt_file_is_reported_and_rebuilt(path, text):
    path.parent.mkdir(mode=0o700)
    path.write_bytes(text)
    database = open_(path)
    with pytest.warns(PlanDatabaseWarning, match="plans.json"):
        assert find(database) is None
    assert len(database.verify()) == 1
    database.add(PROBLEM, "f", SECONDS)
    assert open_(path).verify() == []
    assert find(open_(path)).best == RowPlan(1)


def test_half_types_have_records_of_their_own(path):
    database = open_(path)
    for number, dtype in enumerate(FLOATS, 1):
        database.add(replace(PROBLEM, dtype=dtype), "f", {RowPlan(number): 1e-6})
    again = open_(path)
    assert [find(again, replace(PROBLEM, dtype=dtype)).best for dtype in FLOATS] == [
        RowPlan(1),
        RowPlan(2),
        RowPlan(3),
        RowPlan(4),
    ]


def test_plans_of_every_strategy(path):
    """What was written is read again, a plan within another too."""
    team, lane = TeamPlan("sm_90", True, 8), LanePlan("sm_90", 8)
    plans = [RowPlan(2, 8, "rows", True), ScatteredPlan(2), PartitionPlan(2, partitions=3), PartPlan(2, part=9)]
    plans += [SlicePlan(2, width=8), ComposedPlan("csr", 4), team, lane, TeamPartPlan(lane, 9), BucketPlan("sm_90", 4)]
    plans += [ChunkPlan(TeamPartPlan(lane, 9)), BlockPlan(TeamPartPlan(team, 9))]
    plans += [RelationalPlan("gather", 250, 8), ConvPlan("rows", 4, 2, True)]
    plans += [FormatsPlan("bsr(8) + csr", 4, otherwise=RowPlan(2, 8))]
    assert {plan.strategy for plan in plans} == set(STRATEGIES)
    seconds = dict.fromkeys(plans, 1e-6)
    open_(path).add(PROBLEM, "f", seconds)
    assert dict(find(open_(path)).seconds) == seconds


def _damage(record, name):
    if name == "no plan":
        record["seconds"] = []
    elif name == "unsorted":
        record["seconds"].reverse()
    elif name == "negative":
        record["seconds"][0]["seconds"] = -1
    elif name == "plan field":
        record["seconds"][0]["plan"]["turbo"] = True
    elif name == "plan groups":
        record["seconds"][0]["plan"]["groups"] = 0
    elif name == "plan balance":
        record["seconds"][0]["plan"]["balance"] = "luck"
    elif name == "strategy":
        record["seconds"][0]["plan"]["strategy"] = "luck"
    elif name == "dtype":
        record["problem"]["dtype"] = "float8"
    elif name == "text":
        record["problem"]["features"] = "64"
    elif name == "missing":
        del record["fingerprint"]


@pytest.mark.parametrize(
    "name",
    [
        "no plan",
        "unsorted",
        "negative",
        "plan field",
        "plan groups",
        "plan balance",
        "strategy",
        "dtype",
        "text",
        "missing",
    ],
)
def test_one_damaged_record_is_left_out(path, name):
    database = open_(path)
    database.add(PROBLEM, "f", SECONDS)
    database.add(replace(PROBLEM, features=32), "f", SECONDS)
    content = json.loads(path.read_text())
    _damage(content["records"][0], name)
    path.write_text(json.dumps(content))
    again = open_(path)
    with pytest.warns(PlanDatabaseWarning, match="record 0"):
        assert find(again) is None
    assert find(again, replace(PROBLEM, features=32)).best == RowPlan(1)
    assert len(again.verify()) == 1 and "record 0" in again.verify()[0]


def _write_many(path, which):
    database = open_(path)
    for number in range(10):
        database.add(replace(PROBLEM, features=1 + number), f"process {which}", SECONDS)


def test_processes_lose_nothing_of_each_other(path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_many, args=(path, which)) for which in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    database = open_(path)
    assert len(database.records()) == 20 and database.verify() == []
    assert sorted(os.listdir(path.parent)) in (["plans.json"], ["plans.json", "plans.json.lock"])


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    database = open_(tmp_path / "file" / "plans.json")
    with pytest.warns(PlanDatabaseWarning, match="cannot be written"), pytest.warns(PlanDatabaseWarning, match="read"):
        database.add(PROBLEM, "f", SECONDS)
    assert find(database).best == RowPlan(1), "this process still knows"


def test_clear(path):
    database = open_(path)
    database.add(PROBLEM, "f", SECONDS)
    assert database.clear() == 1
    assert find(database) is None and not path.exists()
    assert database.clear() == 0


def test_the_planner_needs_no_torch():
    code = (
        "import sys, gnn_sparse_backend.planner.choose, gnn_sparse_backend.planner.calibrate\n"
        "assert 'torch' not in sys.modules and 'gnn_sparse_backend.ops' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_starts_cost_more_where_threads_sleep(tmp_path, monkeypatch):
    spinning = PlanDatabase(tmp_path / "plans.json")
    monkeypatch.setattr(machine, "threads_sleep", lambda: True)
    sleeping = PlanDatabase(tmp_path / "plans.json")
    assert not sleeping.calibrated and sleeping.units["start"] == 4e-5 > spinning.units["start"]
    assert {**sleeping.units, "start": DEFAULT_UNITS["start"]} == spinning.units == DEFAULT_UNITS
