"""The benchmark of sampling."""

import json

import pytest
import torch

from benchmarks import sampling


def test_the_sampler_in_numpy_takes_what_there_is():
    problem = sampling.Problem(300, 1500, 0)
    seeds = torch.arange(40)
    degrees = torch.bincount(problem.row, minlength=300)
    of_all = sampling.in_numpy(problem.graph)(seeds)
    met, rows, expected = set(seeds.tolist()), seeds, 0
    for _ in sampling.FANOUTS:  # nobody has more than the fanout: all neighbours are taken
        assert int(degrees.max()) <= 15
        picked = torch.isin(problem.row, rows)
        expected += int(degrees[rows].clamp(max=10).sum())
        rows = torch.tensor(sorted(set(problem.column[picked].tolist()) - met), dtype=torch.int64)
        met |= set(rows.tolist())
    assert abs(of_all - expected) <= 0.02 * expected


@pytest.mark.slow
def test_the_whole_run(tmp_path, capsys):
    assert sampling.main(["--quick", "--parts", "batches", "overlap", "--budget", "1", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "sampling.json").read_text())
    assert set(report["parts"]["batches"]) == {"gsb", "dgl", "numpy"}
    assert all(each["edges"] > 0 for each in report["parts"]["batches"].values())
    assert "Prefetcher" in capsys.readouterr().out
