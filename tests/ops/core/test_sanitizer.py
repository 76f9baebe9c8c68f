"""What is made of compute-sanitizer's words; no tool and no GPU is needed for that."""

from __future__ import annotations

import sys

import pytest

from tests import sanitizer

pytestmark = pytest.mark.moves_by_itself
RAN = "ran 0: spmm\nran 4: sddmm\n"
CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}


@pytest.mark.parametrize(
    "status, said, tool, good, words",
    [
        (0, RAN + "all calls ran\n", "", True, "2 calls ran"),
        (0, RAN + "all calls ran\n" + CLEAN["memcheck"], "memcheck", True, "clean: 2 calls"),
        (0, RAN + "all calls ran\n" + CLEAN["racecheck"], "racecheck", True, "clean: 2 calls"),
        (0, RAN + "all calls ran\n", "memcheck", False, "no summary"),
        (0, RAN + CLEAN["memcheck"], "memcheck", False, "before all calls ran"),
        (86, RAN + "all calls ran\n========= ERROR SUMMARY: 3 errors\n", "memcheck", False, "found 3 problems"),
        (
            0,
            RAN + "all calls ran\n========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n",
            "racecheck",
            False,
            "found 1",
        ),
        (None, RAN, "memcheck", False, "go on with --first 5"),
        (None, "", "racecheck", False, "more --minutes"),
        (1, RAN + "Traceback\nRuntimeError: no kernel\n", "", False, "RuntimeError: no kernel"),
    ],
)
def test_verdicts(status, said, tool, good, words):
    found = sanitizer.verdict(status, said, tool)
    assert found[0] is good and words in found[1]


def test_without_a_tool_or_a_gpu_it_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sanitizer.shutil, "which", lambda *given, **more: None)
    assert sanitizer.main(["--out", str(tmp_path)]) == 2
    assert "not checked: compute-sanitizer is not on the path" in capsys.readouterr().out


def test_tools_are_run_on_all_calls(monkeypatch, tmp_path, capsys):
    """Without a tool side by side; memcheck with memory that nothing else lies in; options that the tool has alone."""
    commands = []

    def watched(given, seconds, log, environment):
        commands.extend((command, environment.get("PYTORCH_NO_CUDA_MEMORY_CACHING")) for command in given)
        tool = given[0][2] if given[0][0] != sys.executable else ""
        return [(0, RAN + "all calls ran\n" + CLEAN.get(tool, ""))] * len(given)

    monkeypatch.setattr(sanitizer, "lacking", lambda: None)
    monkeypatch.setattr(sanitizer, "sanitizer_path", lambda: "/bin/compute-sanitizer")
    monkeypatch.setattr(sanitizer, "options_of", lambda path, tool: ["--padding", "256"] if tool == "memcheck" else [])
    monkeypatch.setattr(sanitizer, "watched", watched)
    assert sanitizer.main(["--only", "rgms", "--processes", "2", "--out", str(tmp_path)]) == 0
    assert [" ".join(command[1:5]) for command, _ in commands[:2]] == ["-u -m tests.sanitizer --inside"] * 2
    assert [command[-2:] for command, _ in commands[:2]] == [["0", "2"], ["1", "2"]]
    assert commands[2][0][:7] == [
        "/bin/compute-sanitizer",
        "--tool",
        "memcheck",
        "--error-exitcode",
        "86",
        "--padding",
        "256",
    ]
    assert [alone for _, alone in commands] == [None, None, "1", None] and commands[3][0][2] == "racecheck"
    assert capsys.readouterr().out.count("clean: 2 calls") == 2


@pytest.mark.slow
def test_what_takes_too_long_is_ended(tmp_path):
    command = [sys.executable, "-S", "-c", "import time; print('ran 7: spmm', flush=True); time.sleep(600)"]
    quick = [sys.executable, "-S", "-c", "print('all calls ran')"]
    (status, said), (other, last) = sanitizer.watched([command, quick], 3.0, tmp_path / "log", {})
    assert status is None and other == 0 and last == "all calls ran\n" and "ran 7" in (tmp_path / "log").read_text()
    assert "--first 8" in sanitizer.verdict(status, said, "memcheck")[1]
