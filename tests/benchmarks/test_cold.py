"""The benchmark of a first epoch shares out all of its time, and shows what it measured."""

import json
import time

import pytest

from benchmarks import cold


def test_what_is_measured_within_a_part_is_not_its_own():
    clock, begin = cold.Clock(), cold.spent()

    def work(seconds):
        end = cold.spent() + seconds
        while cold.spent() < end:
            pass

    with clock.part("outer"):
        work(0.02)
        with clock.part("inner"):
            work(0.05)
        time.sleep(0.01)
    assert 0.05 <= clock.seconds["inner"] and 0.02 <= clock.seconds["outer"] < clock.seconds["inner"]
    assert sum(clock.seconds.values()) <= cold.spent() - begin


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    assert cold.main(["--quick", "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "cold.json").read_text())["rows"]
    assert row["kernels"] > 0 and all(row[part] > 0 for part in cold.PARTS[:-1])
    assert "GraphSAGE" in capsys.readouterr().out
