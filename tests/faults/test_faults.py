"""The planted faults are what they say: one line of the package each, that the present tree still has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faults.fault import ROOT, all_faults

FAULTS = all_faults()
PACKAGE = "gnn_sparse_backend"


def rooms() -> set[str]:
    """Folders of the package with code in them."""
    files = [path for path in (ROOT / PACKAGE).rglob("*.py") if path.name != "__init__.py"]
    return {path.parent.relative_to(ROOT).as_posix() for path in files}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_one_line_of_the_package(fault):
    (file,) = fault.files
    removed, added = fault.lines
    assert file.startswith(f"{PACKAGE}/")
    assert len(removed) <= 1 and len(added) <= 1 and removed != added
    assert fault.subject and len(fault.subject) <= 120 and "\n" not in fault.subject


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_of_its_area_are_there(fault):
    assert fault.tests
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert path.startswith("tests/") and (ROOT / path).exists(), test
        assert not name or f"def {name}(" in Path(ROOT, path).read_text(encoding="utf-8"), test


def test_every_patch_applies():
    for fault in FAULTS:
        command = ["git", "apply", "--check", "--whitespace=nowarn", str(fault.path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{fault.name}: {done.stderr}"


def test_no_room_is_without_a_fault():
    """Neither is a name given twice, nor are the faults too few to say much."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert rooms() - {str(Path(fault.files[0]).parent) for fault in FAULTS} == set()
