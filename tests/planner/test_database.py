"""Measured plans outlive the process, and nothing in the file can stop a program."""

import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gnn_sparse_backend.compiler.language.types import BYTES, FLOATS
from gnn_sparse_backend.planner import machine
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.cuda.plan import CudaPlan
from gnn_sparse_backend.planner.database import PlanDatabase, PlanDatabaseWarning
from gnn_sparse_backend.planner.plan import Plan
from gnn_sparse_backend.planner.problem import CudaProblem, Problem

PROBLEM = Problem("sum:column", 100, 90, 1000, 64, "float32", 2, 90)
SECONDS = {Plan(32): 3e-5, Plan(1): 2e-5, Plan(32, 8, "rows", "simd", 2, 500): 4e-5}


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
    assert record.best == Plan(1)
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
    database.add(PROBLEM, "f", {Plan(8): 1e-6})
    slower = {plan: 2 * seconds for plan, seconds in SECONDS.items()}
    for seconds in (SECONDS, slower):
        assert database.add(PROBLEM, "f", seconds).best == Plan(1)
        assert dict(find(open_(path)).seconds) == seconds
    assert len(database.records()) == 1


def test_what_was_cut_short_does_not_replace_more(path):
    first, second = open_(path), open_(path)
    assert find(first) is None and find(second) is None  # both have read the file
    first.add(PROBLEM, "f", SECONDS)
    assert first.add(PROBLEM, "f", {Plan(8): 1e-6}).best == Plan(1)
    second.add(PROBLEM, "f", {Plan(8): 1e-6})  # which does not know of the other's
    assert find(first).best == Plan(1) and find(open_(path)).best == Plan(1)


@pytest.mark.short(2)
@pytest.mark.parametrize("other", [{"machine": "there"}, {"versions": {"package": "2"}}])
def test_other_machines_and_versions_are_kept_and_not_used(path, other):
    open_(path).add(PROBLEM, "f", SECONDS)
    open_(path).set_units({**DEFAULT_UNITS, "edge": 5.0})
    stranger = open_(path, **other)
    assert find(stranger) is None
    assert stranger.calibrated == ("versions" in other)
    stranger.add(PROBLEM, "f", {Plan(4): 1.0})
    assert find(open_(path)).best == Plan(1)
    assert find(open_(path, **other)).best == Plan(4)
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
    "text", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"format": 99, "records": []}', b'{"format": 1']
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
    assert find(open_(path)).best == Plan(1)


def as_format_4(path):
    """Rewrite the file as versions did that knew no slices of features."""
    content = json.loads(path.read_text())
    content["format"] = 4
    for record in content["records"]:
        for pair in record["seconds"]:
            del pair["plan"]["sliced"]
    path.write_text(json.dumps(content))


def as_format_3(path):
    """Rewrite the file as versions did that looked at no typical row."""
    as_format_4(path)
    content = json.loads(path.read_text())
    content["format"] = 3
    for record in content["records"]:
        del record["problem"]["typical"]
    path.write_text(json.dumps(content))


def as_format_2(path):
    """Rewrite the file as versions did that kept the bytes of a value in place of its type."""
    as_format_3(path)
    content = json.loads(path.read_text())
    content["format"] = 2
    for record in content["records"]:
        problem = record["problem"]
        problem["itemsize"] = BYTES[problem.pop("dtype")]
        for name in ("in_bsr", "in_sr_bcrs"):
            problem.pop(name, None)
    path.write_text(json.dumps(content))


def test_half_types_have_records_of_their_own(path):
    database = open_(path)
    for number, dtype in enumerate(FLOATS, 1):
        database.add(replace(PROBLEM, dtype=dtype), "f", {Plan(number): 1e-6})
    again = open_(path)
    assert [find(again, replace(PROBLEM, dtype=dtype)).best for dtype in FLOATS] == [Plan(1), Plan(2), Plan(3), Plan(4)]


def test_records_of_the_format_before_this_one(path):
    gpu = CudaProblem("sum:column", 100, 90, 1000, 64, "float32", 1, arch="sm_90", cache=7, slots=3)
    database = open_(path)
    database.add(replace(PROBLEM, typical=30), "f", SECONDS)
    database.on("a GPU", {}).add(gpu, "f", {CudaPlan(arch="sm_90"): 1e-6})
    as_format_3(path)
    again = open_(path)
    assert again.verify() == [] and dict(find(again, replace(PROBLEM, typical=30)).seconds) == SECONDS, (
        "found by what it was measured on"
    )
    again.add(PROBLEM, "g", SECONDS)
    later = open_(path)
    assert (
        later.verify() == [] and len(later.records()) == 3 and later.on("a GPU", {}).find(gpu, lambda: "f") is not None
    )
    assert json.loads(path.read_text())["format"] == 5


def test_records_of_the_format_before_that(path):
    """Those of types of four and eight bytes are of one type and stay; the others are left out, in one warning."""
    gpu = CudaProblem("sum:column", 100, 90, 1000, 64, "float32", 1, arch="sm_90", cache=7, slots=3)
    database = open_(path)
    for dtype in FLOATS:
        database.add(replace(PROBLEM, dtype=dtype), "f", SECONDS)
    database.on("a GPU", {}).add(gpu, "f", {CudaPlan(arch="sm_90"): 1e-6})
    database.set_units({**DEFAULT_UNITS, "edge": 7e-9})
    as_format_2(path)
    again = open_(path)
    with pytest.warns(PlanDatabaseWarning, match="record 2 and 1 more: .* of 2 bytes .* measure again") as warned:
        assert [find(again, replace(PROBLEM, dtype=dtype)) is not None for dtype in FLOATS] == [
            True,
            True,
            False,
            False,
        ]
    assert len(warned) == 1 and dict(find(again).seconds) == SECONDS and again.units["edge"] == 7e-9
    again.add(replace(PROBLEM, dtype="float16"), "f", {Plan(5): 1e-6})
    later = open_(path)
    assert (
        later.verify() == [] and len(later.records()) == 4 and later.on("a GPU", {}).find(gpu, lambda: "f") is not None
    )
    assert (
        find(later, replace(PROBLEM, dtype="float16")).best == Plan(5)
        and find(later, replace(PROBLEM, dtype="bfloat16")) is None
    )


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
    elif name == "dtype":
        record["problem"]["dtype"] = "float8"
    elif name == "text":
        record["problem"]["features"] = "64"
    elif name == "missing":
        del record["fingerprint"]


@pytest.mark.parametrize(
    "name", ["no plan", "unsorted", "negative", "plan field", "plan groups", "plan balance", "dtype", "text", "missing"]
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
    assert find(again, replace(PROBLEM, features=32)).best == Plan(1)
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
    assert find(database).best == Plan(1), "this process still knows"


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
