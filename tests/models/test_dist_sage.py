"""DGL's distributed store with the backend off and on, by the command of a user."""

from __future__ import annotations

import json
import subprocess

import pytest

from models import dist_sage
from models.dgl_engine import machines

SMALL = ("--nodes", "1200", "--edges", "9000", "--batch", "64", "--steps", "4", "--hidden", "8", "--fanouts", "4", "4")


def ran(tmp_path, *arguments: str) -> dict:
    pytest.importorskip("dgl")
    status = dist_sage.main([*SMALL, *arguments, "--dtype", "float64", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("dist-*.json")
    found = json.loads(path.read_text())
    assert status == 0 and found["difference"] < 1e-9 and found["fallbacks"] == 0
    assert found["loss"]["off"][-1] < found["loss"]["off"][0]
    assert all(seconds > 0 for seconds in found["seconds"].values())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sage", "rgcn"])
def test_two_parts_on_two_machines(model, tmp_path):
    refused = machines.why_not()
    if refused:
        pytest.skip(f"no network namespaces: {refused}")
    found = ran(tmp_path, "--model", model, "--machines", "2", "--trainers", "1")
    assert found["parts"] == [0, 1] and all(sent > 0 for sent in found["sent_per_step"])
    assert found["ours"] == 2 * 4 * 2  # an operator for a layer, in four steps of two trainers


@pytest.mark.slow
def test_one_part_and_two_trainers(tmp_path):
    found = ran(tmp_path, "--machines", "1", "--trainers", "2")
    assert found["parts"] == [0] and found["sent_per_step"] is None and len(found["peak"]["trainer"]) == 2


def test_a_computer_without_namespaces_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(machines.shutil, "which", lambda tool: None if tool == "ip" else tool)
    assert machines.why_not() == "ip not found"
    assert dist_sage.main(["--machines", "2", "--out", str(tmp_path)]) == 2
    assert "--machines 2: ip not found; take --machines 1 --trainers 2" in capsys.readouterr().err
    job = dist_sage.job_of(dist_sage.options([]), str(tmp_path))
    assert (job.machines, job.trainers, job.separate) == (1, 2, False)

    def refuses(*_, **__):
        return subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")

    monkeypatch.undo()
    monkeypatch.setattr(machines.subprocess, "run", refuses)
    assert "Operation not permitted" in machines.why_not() or "not found" in machines.why_not()


def test_the_summary_takes_the_slowest_trainer():
    def trainer(off, on, part):
        seconds = {"off": [9, 9, off], "on": [9, 9, on], "sampling": [9, 9, 1.0], "features": [9, 9, 2.0]}
        losses = {"off": [2.0, 1.0], "on": [2.0, 1.25]}
        return {"seconds": seconds, "losses": losses, "ours": 3, "fallbacks": 0, "part": part, "peak": 7}

    told = {"trainer": [trainer(4.0, 2.0, 1), trainer(5.0, 1.0, 0)], "server": [{"peak": 8}], "sent": [30, 60]}
    job = dist_sage.job_of(dist_sage.options(["--machines", "1", "--steps", "3"]), "nowhere")
    found = dist_sage.summary(job, told)
    assert found["seconds"] == {"off": 5.0, "on": 2.0, "sampling": 1.0, "features": 2.0}
    assert found["difference"] == 0.25 and found["parts"] == [0, 1] and found["ours"] == 6
    assert found["peak"] == {"trainer": [7, 7], "server": [8]} and found["sent_per_step"] == [10, 20]
