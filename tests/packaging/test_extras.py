"""Frameworks without a wheel for every machine: what is installed, and what users are told where nothing can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import gnn_sparse_backend as gsb
from gnn_sparse_backend import extras
from gnn_sparse_backend.cli import examine
from gnn_sparse_backend.integrations.core import registry

ROOT = Path(__file__).parents[2]
HAS_DGL = [
    *(("linux-x86_64", python) for python in ((3, 10), (3, 11), (3, 12))),
    ("linux-aarch64", (3, 10)),
    ("linux-aarch64", (3, 12)),
    ("macosx-14.0-arm64", (3, 11)),
    ("macosx-11.0-x86_64", (3, 12)),
]
HAS_NONE = [
    ("linux-x86_64", (3, 13)),
    ("linux-aarch64", (3, 14)),
    ("macosx-14.0-arm64", (3, 13)),
    ("linux-ppc64le", (3, 11)),
    ("win-amd64", (3, 12)),
]


@pytest.fixture
def act(monkeypatch):
    """A function after which this is another machine, and DGL is not installed."""

    def act(platform, python):
        monkeypatch.setattr(extras, "sysconfig", SimpleNamespace(get_platform=lambda: platform))
        monkeypatch.setattr(extras, "sys", SimpleNamespace(version_info=(*python, 1, "final", 0)))
        found, version_of = registry.importlib.util.find_spec, examine._version
        spec = lambda name, *more: None if name == "dgl" else found(name, *more)
        monkeypatch.setattr(registry.importlib.util, "find_spec", spec)
        monkeypatch.setattr(examine, "_version", lambda name: None if name == "dgl" else version_of(name))

    return act


def told() -> str:
    """What `gsb doctor` says of DGL."""
    (finding,) = [finding for finding in examine._versions() if finding.name == "dgl"]
    assert finding.state == "absent"
    return finding.text


@pytest.mark.parametrize("machine", HAS_DGL, ids=str)
def test_where_there_is_a_dgl_its_command_is_told(machine, act):
    act(*machine)
    command = "pip install 'gnn-sparse-backend[dgl]'"
    with pytest.raises(ImportError, match="dgl is not installed; ") as refused:
        gsb.enable("dgl")
    assert str(refused.value).endswith(command) and told() == f"not installed: {command}"


@pytest.mark.parametrize("machine", HAS_NONE, ids=str)
def test_where_there_is_none_that_is_said_with_where_there_is(machine, act):
    act(*machine)
    platform, (major, minor) = machine
    words = f"there is none for Python {major}.{minor} on {platform}: "
    words += "DGL has wheels for Python 3.10 to 3.12 on Linux and macOS (x86_64, aarch64, arm64)"
    with pytest.raises(ImportError) as refused:
        gsb.enable("dgl")
    assert str(refused.value) == f"cannot enable 'dgl': dgl is not installed; {words}"
    assert told() == f"not installed: {words}"


def test_frameworks_in_python_alone_have_no_limits(act):
    act("plan9-mips", (3, 14))
    assert extras.how_to_install("pyg") == "pip install 'gnn-sparse-backend[pyg]'"


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_each_python_is_given_the_dgl_that_is_tested(python):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dgl"]
    tested = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    applies = lambda each: each.name == "dgl" and each.marker.evaluate({"python_version": python})
    pins = [
        [str(each.specifier) for each in map(Requirement, lines) if applies(each)]
        for lines in (given, [line for line in tested if line.startswith("dgl")])
    ]
    assert pins[0] == pins[1] and len(pins[0]) == 1


def test_the_makefile_is_told_before_anything_is_installed():
    """By a Python without any package."""
    command = [sys.executable, "-I", "-S", ROOT / "gnn_sparse_backend" / "extras.py"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert printed == "".join(f"{name}," for name, wheels in extras.WHEELS.items() if wheels.are_here())
    assert "gnn_sparse_backend/extras.py" in (ROOT / "Makefile").read_text()


@pytest.mark.wheel
@pytest.mark.parametrize("machine", [*HAS_DGL, *HAS_NONE], ids=str)
def test_pip_finds_a_dgl_where_that_is_said(machine, tmp_path):
    """By what the index has, without installing it."""
    platform, (major, minor) = machine
    system, _, processor = platform.rpartition("-")
    platforms = {
        "linux": [f"manylinux1_{processor}", f"manylinux2014_{processor}", f"manylinux_2_28_{processor}"],
        "macosx-14.0": ["macosx_14_0_arm64"],
        "macosx-11.0": ["macosx_11_0_x86_64"],
        "win": ["win_amd64"],
    }[system]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--report", "-"]
    command += ["--target", tmp_path, "--only-binary", ":all:", "--python-version", f"{major}.{minor}"]
    command += [f"--platform={each}" for each in platforms]
    command += ["dgl==1.1.3" if minor < 12 else "dgl==2.1.0"]
    done = subprocess.run(command, capture_output=True, text=True)
    if machine in HAS_DGL:
        assert len(json.loads(done.stdout)["install"]) == 1
    else:
        assert "No matching distribution found for dgl" in done.stderr


def test_a_dgl_that_lacks_a_part_is_told_and_works(monkeypatch):
    from gnn_sparse_backend.integrations.core.substitutes import stand_ins

    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace())
    lacking = stand_ins.StandIn(stand_ins.GRAPHBOLT, "GraphBolt is not here")
    monkeypatch.setitem(sys.modules, stand_ins.GRAPHBOLT, lacking)
    monkeypatch.setattr(examine, "_version", lambda name: "2.1.0")
    finding = examine._import("versions", "dgl", "dgl", "")
    assert (finding.state, finding.text) == ("ok", "2.1.0; GraphBolt is not here")
