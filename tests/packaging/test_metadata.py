"""What the package says of itself: one version, and ranges that hold what the project is tested with."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gnn_sparse_backend

ROOT = Path(__file__).parents[2]


def test_the_version_is_read_without_pytorch():
    script = "import sys, gnn_sparse_backend as gsb; print(gsb.__version__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == [gnn_sparse_backend.__version__, "False"]


def test_the_tested_versions_are_within_the_ranges():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = {}
    for text in chain(project["dependencies"], *project["optional-dependencies"].values()):
        requirement = Requirement(text)
        ranges.setdefault(requirement.name, []).append(requirement)
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    for pin in pins:
        for exact in pin.specifier:
            if exact.operator == "==":
                asked = [each for each in ranges.get(pin.name, []) if each.marker in (None, pin.marker)]
                assert all(each.specifier.contains(exact.version) for each in asked), pin
    assert {"torch", "apache-tvm", "apache-tvm-ffi"} <= {pin.name for pin in pins if "==" in str(pin)}


def test_addresses_are_the_same_everywhere():
    lines = (ROOT / "pyproject.toml").read_text() + (ROOT / "CITATION.cff").read_text()
    source, site = (re.search(rf'^{name} = "(.*)"$', lines, re.MULTILINE)[1] for name in ("Source", "Documentation"))
    assert re.findall(r'^(?:repository-code|url): "(.*)"$', lines, re.MULTILINE) == [source, site]
    for name, path in (("Issues", "issues"), ("Changelog", "blob/main/CHANGELOG.md")):
        assert f'{name} = "{source}/{path}"' in lines


def test_the_readme_of_the_package_index_leads_to_files_of_this_version():
    shown = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]()
    base = f"https://github.com/gnn-sparse-backend/gnn_sparse_backend/{{}}/v{gnn_sparse_backend.__version__}/"
    for picture, target in re.findall(r"(!?)\[[^\]]*\]\(([^)#]+)", shown):
        assert target.startswith("https://"), target
        if (inside := target.removeprefix(base.format("raw" if picture else "blob"))) != target:
            assert (ROOT / inside).exists(), target
    assert shown.count(base.format("raw")) == 1 and shown.count(base.format("blob")) > 20


def test_the_changelog_has_notes_for_the_tag_of_this_version():
    notes = runpy.run_path(str(ROOT / ".github" / "release_notes.py"))["notes"]
    text = notes(f"v{gnn_sparse_backend.__version__}")
    assert "### Added" in text and "\n## " not in text
    for tag in ("v9.9", gnn_sparse_backend.__version__):
        with pytest.raises(SystemExit, match=f"the tag must be v{gnn_sparse_backend.__version__}"):
            notes(tag)
