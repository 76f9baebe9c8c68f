"""The workflows of a code host, which do not run here: they are what its schema allows, and name what there is."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: it comes with the extra `docs`")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = (ROOT / "pyproject.toml").read_text()


def loaded(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def jobs() -> dict[str, dict]:
    return {f"{path.stem}: {name}": job for path in WORKFLOWS for name, job in loaded(path)["jobs"].items()}


def test_workflows_are_what_the_schema_allows(tmp_path):
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed: it comes with the extra `test`")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, *WORKFLOWS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-in:"))
    assert subprocess.run([*check, wrong], capture_output=True).returncode != 0


def test_commands_name_what_there_is():
    commands = [step["run"] for job in jobs().values() for step in job.get("steps", ()) if "run" in step]
    makefile = (ROOT / "Makefile").read_text()
    text = "\n".join([*commands, *(str(job.get("strategy", "")) for job in jobs().values())])
    targets = re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    assert "docs" in targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    extras = re.findall(r'-e "\.\[(?:\$\(.*?\))?([\w,]+)\]"', text)
    assert extras
    for extra in ",".join(extras).split(","):
        assert re.search(rf"^{extra} = \[", PROJECT, re.MULTILINE), extra
    named = re.findall(r"(?<![\w/])((?:\.github|gnn_sparse_backend|requirements|tests)/[\w/]+\.(?:py|txt))", text)
    assert {"requirements/oldest.txt", ".github/release_notes.py"} <= set(named)
    for name in named:
        assert (ROOT / name).exists(), name


def test_every_system_has_every_python():
    matrix = jobs()["tests: machines"]["strategy"]["matrix"]
    assert len({system.partition("-")[0] for system in matrix["system"]}) == 3
    assert any(system.endswith("-arm") for system in matrix["system"])
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)", PROJECT)


def test_what_a_job_takes_another_has_made():
    made = lambda action: {
        step["with"]["name"]
        for job in jobs().values()
        for step in job.get("steps", ())
        if step.get("uses", "").startswith(f"actions/{action}-artifact@")
    }
    assert made("download") == made("upload") == {"dist", "notes", "site"}


def test_nothing_may_write_but_what_publishes():
    for path in WORKFLOWS:
        assert loaded(path)["permissions"] == {"contents": "read"}
    may = {name: job["permissions"] for name, job in jobs().items() if "permissions" in job}
    assert may == {
        "release: pypi": {"id-token": "write"},
        "release: github": {"contents": "write"},
        "release: site": {"pages": "write", "id-token": "write"},
    }
    publish = jobs()["release: pypi"]
    assert publish["needs"] == "tests" and publish["environment"]["name"] == "pypi"
    assert not re.search(r"secrets\.|password", "".join(path.read_text() for path in WORKFLOWS))
