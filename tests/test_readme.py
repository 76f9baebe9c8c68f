"""What the README tells a newcomer to type exists and runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_make_commands_are_targets():
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=`| {2,}| [A-Z_]+=)", README))
    assert {"demo", "test", "bench"} <= named
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert named <= targets
    for variable in re.findall(r"make [a-z]+ ([A-Z_]+)=", README):
        assert f"$({variable})" in makefile


def test_ci_runs_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make demo\b", script, re.MULTILINE) and re.search(r"^make test\b", script, re.MULTILINE)


@pytest.mark.parametrize("block", _blocks("python"), ids=lambda block: block.split("\n")[-2][:30])
def test_python_snippet_runs(block):
    if '"dgl"' in block:
        pytest.importorskip("dgl")
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_python_snippets_were_found():
    assert len(_blocks("python")) == 2


def test_scripts_take_the_options_shown():
    commands = re.findall(r"^\.venv/bin/python -m (models\.\w+) (.*)$", README, re.MULTILINE)
    assert commands
    for module in {module for module, _ in commands}:
        done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT)
        for option in re.findall(r"--[a-z-]+", " ".join(options for each, options in commands if each == module)):
            assert option in done.stdout


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
