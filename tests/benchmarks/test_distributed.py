"""The benchmark of processes that share a graph, and its predictions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import distributed
from benchmarks.partitioned import graphs, prediction, processes
from benchmarks.partitioned.prediction import Rates, Shape

UNIT = Rates(edge=1.0, flop=0.0, byte=0.0, latency=0.0)


def test_the_halo_of_ranges_is_counted():
    nodes, edges, parts = 40_000, 400_000, 4
    row, column = graphs.edges_of(nodes, edges, 0)
    own = nodes // parts
    halos = [np.unique(column[(row // own == part) & (column // own != part)]).size for part in range(parts)]
    inner = np.mean(row // own == column // own)
    halo, share = prediction.halo_of(nodes, edges, parts)
    assert np.mean(halos) / own == pytest.approx(halo, rel=0.02) and inner == pytest.approx(share, abs=0.005)
    assert prediction.halo_of(nodes, edges, 1) == (0.0, 1.0)


def test_a_prediction_is_what_its_parts_are():
    shape = Shape(nodes=100, edges=1000, width=8, layers=2, halo=0.5, inner=0.75)
    one = prediction.seconds(shape, 1, UNIT, 0.0)
    assert one["epoch"] == one["compute"] == 3 * 1000 * 8 and one["sent"] == one["gradients"] == 0
    half = prediction.seconds(shape, 2, UNIT, 1e9)
    assert half["compute"] == 3 * 500 * 8 and half["sent"] == 3 * 50 * 0.5 * 8 * 4 and half["waited"] == 0
    slow = prediction.seconds(shape, 2, UNIT, 0.1)  # a byte in ten seconds: sums over inner edges are all that hides
    assert slow["wire"] == 24000 and slow["waited"] == 24000 - 0.75 * 12000
    assert slow["epoch"] == 12000 + slow["waited"] + slow["gradients"]
    packed = prediction.seconds(shape, 2, Rates(0.0, 1.0, 2.0, 1.0), 1e30)
    assert packed["packing"] == 2 * 2400 and packed["wire"] == pytest.approx(3)
    assert packed["compute"] == 3 * 2 * 2 * 2 * 50 * 64
    rest = prediction.calibrated(UNIT, shape, 24000 + 1600)  # a second for each number of two layers' rows
    assert rest == Rates(1.0, 0.0, 0.0, 0.0, 1.0) and prediction.seconds(shape, 1, rest, 0.0)["epoch"] == 25600
    each = prediction.seconds(shape, 2, rest.of_a_process(2, 0.5), 0.0)  # half of the work at half the rate
    assert each["compute"] == 25600 and each["waited"] == 0 and each["wire"] == 1.5
    assert prediction.memory(shape, 2) == 500 * 48 + 50 * 1.5 * 8 * 4 * 12


def test_the_summary_tells_compute_wait_and_gradients():
    def told(seconds, halo):
        epoch = {"epoch": seconds, "halo": halo, "gradients": 1.0, "loss": 0.5}
        more = {"wire": 4.0, "sent": 10, "peak": 7, "rows": 3, "edges": 9, "inner": 5}
        return more | {"epochs": [epoch, epoch | {"epoch": seconds + 2}, epoch]}

    found = processes.summary([told(10.0, 2.0), told(9.0, 4.0)], 1)
    assert found["epoch"] == 10 and found["epochs"] == [10, 12, 10] and found["halo"] == 3 and found["gradients"] == 1
    assert found["compute"] == 9.5 - 3 - 1 and found["hidden"] == 0.25 and found["sent"] == [10, 10]


@pytest.mark.slow
def test_the_whole_run(tmp_path, capsys, wide_terminal):
    small = ["--quick", "--out", str(tmp_path), "--layers", "2", "--width", "8"]
    assert distributed.main(small) == 0
    report = json.loads((tmp_path / "distributed.json").read_text())
    cells = report["epoch"]["cells"]
    assert list(cells) == list(distributed.CONTENDERS)
    for name in distributed.CONTENDERS.keys() - {"1 x 2", "2 x 1, loopback, delayed"}:
        assert cells["1 x 2"]["loss"] == pytest.approx(cells[name]["loss"], rel=1e-4)
        assert cells["1 x 2"]["sent"] == [0] and all(sent > 0 for sent in cells[name]["sent"])
    (scaled,) = report["scaling"]
    assert [cell["processes"] for cell in scaled["strong"]] == [1, 2]
    assert sum(scaled["weak"][0]["edges"]) == 25_000 and sum(scaled["weak"][1]["edges"]) == 50_000
    assert [cell["machines"] for cell in report["predict"]["cells"]] == [1, *distributed.MACHINES]
    assert report["cut"]["peak"] > 0 and report["cut"]["edges"] == 100_000
    said = capsys.readouterr().out
    assert "PREDICTED, never run" in said and "over the first" in said
