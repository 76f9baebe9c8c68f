"""The run on a GPU, rehearsed without one: parts that crash, hang or come too late, their files, and a kit of
kernels.
"""

from __future__ import annotations

import io
import json
import sys
import time

import pytest
from rich.console import Console

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import kit, places, tables
from benchmarks.gpu.registry import PARTS, Part, chosen
from benchmarks.gpu.reports import Reports, state_of
from benchmarks.gpu.runner import LINES, LOG, NOT_BEGUN, Run
from benchmarks.gpu.told import FAILED, OK, REHEARSE, WRONG, GpuLost, Told, read_lines
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import nvrtc_available

CRASHES = "import os\n\ndef run(told):\n    told.record('before')\n    os.abort()\n"
RAISES = "def run(told):\n    told.record('before')\n    raise ValueError('no such thing')\n"
HANGS = (
    "import subprocess, sys, time\n\ndef run(told):\n    told.record('before')\n"
    "    child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
    "    (told.kept / 'child').write_text(str(child.pid))\n    time.sleep(600)\n"
)
LOSES = (
    "from benchmarks.gpu.told import GpuLost\n\ndef run(told):\n    if 'kernel' not in told.done:\n"
    "        told.record('kernel', 'failed')\n        raise GpuLost('after kernel')\n    told.record('last')\n"
)
ADOPTS = (
    "import json\n\ndef run(told):\n    told.record('a')\n"
    "    (told.work / 'environment.json').write_text(json.dumps({'GSB_CUDA_ARCH': 'sm_90a'}))\n"
)
GETS = "import os\n\ndef run(told):\n    told.record(os.environ.get('GSB_CUDA_ARCH', 'none'))\n"


@pytest.fixture
def part_of(tmp_path, monkeypatch):
    """A part of the text of its module."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(path for path in sys.path if path)}")

    def make(name: str, text: str, seconds: float = 30.0) -> Part:
        (tmp_path / f"part_{name}.py").write_text(text)
        return Part(name, seconds, name, f"part_{name}")

    return make


def a_run(tmp_path, seconds: float = 60.0, mode: str = "gpu") -> Run:
    return Run(tmp_path / "out", tmp_path / "scratch", time.monotonic() + seconds, mode=mode)


def test_a_run_goes_on_whatever_becomes_of_a_part(part_of, tmp_path):
    """Each part's results are kept up to where it went; a hung one ends with what it has started."""
    run = a_run(tmp_path)
    parts = [
        part_of("crash", CRASHES),
        part_of("raise", RAISES),
        part_of("hang", HANGS, 3.0),
        part_of("lose", LOSES),
        part_of("adopt", ADOPTS),
        part_of("get", GETS),
    ]
    said = []
    ended = run.all(parts, said.append)
    assert ended == {
        "crash": "ended by signal SIGABRT",
        "raise": "failed with exit status 1",
        "hang": "stopped: its 3 s were over",
        "lose": "done, and lost the GPU 1 times on its way",
        "adopt": "done",
        "get": "done",
    }
    assert [words.split(":")[0] for words in said] == list(ended)
    lines = read_lines(run.lines)
    assert [(line["part"], line["where"], line["state"]) for line in lines] == [
        ("crash", "before", OK),
        ("raise", "before", OK),
        ("raise", "the part itself", FAILED),
        ("hang", "before", OK),
        ("lose", "kernel", FAILED),
        ("lose", "the GPU", FAILED),
        ("lose", "last", OK),
        ("adopt", "a", OK),
        ("get", "sm_90a", OK),
    ]
    child = int((tmp_path / "out" / "child").read_text())
    assert not _runs(child), "what a part has started ends with it"
    assert "ValueError: no such thing" in (tmp_path / "out" / LOG).read_text()
    text = io.StringIO()
    path = tables.write(lines, ended, run.out, Console(file=text, width=200))
    for words in ("FAILED raise: the part itself: ValueError: no such thing", "PART hang: stopped: its 3 s were over"):
        assert words in text.getvalue() and words in path.read_text()
    assert tables.failed(lines, ended)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_there_is_no_time_for_is_said(part_of, tmp_path):
    run = a_run(tmp_path, seconds=1.0)
    assert run.all([part_of("get", GETS)], lambda words: None) == {"get": NOT_BEGUN}
    assert read_lines(run.lines) == []


def test_cells_are_lines_as_soon_as_they_are_written(tmp_path):
    """Also while the file is half written, and once each."""
    lines, work = tmp_path / LINES, tmp_path / "work"
    (work / "0").mkdir(parents=True)
    reports, path = Reports("spmm", work, lines), work / "0" / "spmm_cuda.json"
    cells = [
        {"graph": "cora", "features": width, "times": {"gnn_sparse_backend": [1e-3, 2e-3], "CuPy": words}}
        for width, words in ((32, [2e-3, 3e-3]), (64, "no maxima"))
    ]
    path.write_text(json.dumps({"precision": "float32", "cells": cells[:1]}))
    reports.collect()
    path.write_text('{"cells": [')
    reports.collect()
    path.write_text(json.dumps({"precision": "float32", "cells": cells}))
    reports.collect()
    reports.collect()
    assert [line["where"] for line in read_lines(lines)] == [
        "0/spmm_cuda: cora, 32, float32",
        "0/spmm_cuda: cora, 64, float32",
    ]
    with lines.open("a") as file:
        file.write('{"part": "spm')
    assert len(read_lines(lines)) == 2, "a line that was cut off is left out"


@pytest.mark.parametrize(
    "cell, state",
    [
        ({"times": {"gnn_sparse_backend": [1, 1], "CuPy": "wrong"}}, OK),
        ({"times": {"gnn_sparse_backend": "wrong", "CuPy": [1, 1]}}, WRONG),
        ({"times": {"gnn_sparse_backend": "refused: no"}}, FAILED),
        ({"contenders": {"pyg": "refused: no", "pyg+gsb": {"warm": 1}}}, OK),
        ({"contenders": {"pyg": {"warm": 1}, "pyg+gsb": "wrong: y is off"}}, WRONG),
        ({"result": {"seconds": {"plan": 1.0, "other": "wrong"}}}, WRONG),
        ({"result": "not measured"}, FAILED),
        ({"timings": {"gsb": {"median": 1}}, "wrong": {"gsb": "y"}}, WRONG),
    ],
    ids=str,
)
def test_a_cell_is_right_where_ours_is(cell, state):
    assert state_of(cell) == state


def test_goals_are_means_over_cells_of_ours(capsys):
    lines = [
        {"part": "spmm", "where": "a", "state": OK, "ratio": [2.0, each], "times": {"x": [1e-3, 1e-3]}}
        for each in (0.5, 2.0)
    ]
    tables.show(lines, {"spmm": "done", "ncu": NOT_BEGUN}, Console(width=200))
    said = " ".join(capsys.readouterr().out.split())
    assert "1.2, no cell under 0.8 │ 1.00 │ 0.50 │ 2" in said and "PART ncu: not begun" in said


def test_results_are_recorded_and_a_lost_gpu_ends_a_part(tmp_path, monkeypatch):
    told = Told("a", tmp_path / LINES, tmp_path, tmp_path, REHEARSE)
    assert told.attempt("right", lambda: {"excess": float("nan")})
    assert not told.attempt("wrong", lambda: {"state": WRONG})
    assert not told.attempt("raises", lambda: 1 // 0)

    def lost(self):
        raise RuntimeError("CUDA error: misaligned address")

    monkeypatch.setattr(Told, "wait", lost)
    with pytest.raises(GpuLost, match="after kernel: RuntimeError: CUDA error: misaligned address"):
        told.attempt("kernel", lambda: None)
    assert [(line["where"], line["state"]) for line in read_lines(told.lines)] == [
        ("right", OK),
        ("wrong", WRONG),
        ("raises", FAILED),
        ("kernel", FAILED),
    ]


def test_parts_are_chosen_in_their_order():
    assert [part.name for part in chosen(["spmm", "checks"])] == ["checks", "spmm"]
    assert chosen(None) == list(PARTS)
    assert sum(part.seconds for part in PARTS[:3]) < 8 * 60


def test_sources_that_a_gpu_may_refuse_are_seen():
    source = '__shared__ float A[2048];\n  __shared__ half B[64];\n asm volatile("wgmma.mma_async.sync");'
    assert places.shared_bytes(source) == 4 * 2048 + 2 * 64
    assert places.special_instructions(source) == ["wgmma"] and not places.special_instructions("mma.sync.aligned")


def test_every_place_says_what_goes_around_it(capsys):
    assert places.main([]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 7 and all("around it: " in line for line in said)


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path):
    import tarfile

    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "file", "../file")
    with pytest.raises(ValueError, match="no file below it"):
        kit._extract(tmp_path / "bad.tar.xz", tmp_path / "inside")


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc_available(), reason="no NVRTC on this machine")
def test_kernels_of_a_kit_are_those_that_a_rehearsal_asks_for(tmp_path, capsys):
    """Compiled on an acted driver, packed, unpacked, and found under the keys of the dispatch."""
    assert command.main(["--prepare", str(tmp_path / "kit"), "--rehearse", "--only", "sddmm", "--arch", "sm_90"]) == 0
    label = json.loads((tmp_path / "kit" / kit.LABEL).read_text())
    assert label["kernels"] > 0 and label["bytes"] < kit.MOST_BYTES and label["made_by"].startswith("nvrtc-")
    out = tmp_path / "out"
    assert command.main(["--rehearse", "--only", "sddmm", "--cache", str(tmp_path / "kit"), "--out", str(out)]) == 0
    (line,) = [line for line in read_lines(out / LINES) if line["where"] == "kernels in the cache"]
    assert line["asked"] > 0 and line["missing"] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", [part.name for part in PARTS])
def test_every_part_is_rehearsed(part, tmp_path):
    pytest.importorskip("torch_geometric")
    status = command.main(["--rehearse", "--only", part, "--minutes", "20", "--out", str(tmp_path)])
    lines = read_lines(tmp_path / LINES)
    said = (tmp_path / tables.SUMMARY).read_text()
    assert status == 0, said
    assert [line for line in lines if line["part"] == part], (tmp_path / LOG).read_text()
    assert "nothing failed, nothing hung, nothing was left out" in said
    assert {path.name for path in tmp_path.iterdir()} <= {LINES, LOG, tables.SUMMARY, "ncu.txt"}
