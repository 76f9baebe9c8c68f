"""The description that goes with every number."""

import json
import math

import pytest

from benchmarks.support import machine


def test_describe_names_machine_and_libraries():
    description = machine.describe(3)
    assert description["threads"] == 3 and description["cores"] >= 1 and description["cpu"]
    assert description["libraries"]["torch"].startswith("2.")
    assert "torch" in machine.one_line(description) and "3 threads" in machine.one_line(description)


def test_a_busy_machine_is_said_to_be():
    idle = {"load_average": [0.2, 1.0, 1.0], "usable_cores": 2, "logical_cores": 64, "threads": 2}
    assert machine.busy(idle) is None
    assert "7.5" in machine.busy(idle | {"load_average": [7.5, 0.0, 0.0]})
    assert machine.busy(idle | {"threads": 4}) is not None
    assert machine.busy(idle | {"usable_cores": None, "load_average": [7.5, 0.0, 0.0]}) is None


def test_json_is_written_and_nan_refused(tmp_path):
    path = machine.write_json(tmp_path / "deep" / "a.json", {"x": 1.5})
    assert json.loads(path.read_text()) == {"x": 1.5}
    with pytest.raises(ValueError):
        machine.write_json(tmp_path / "b.json", {"x": math.nan})
