"""The planted faults are what they say: one line of the package each, that the present tree still has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults import pages
from tests.faults.fault import PACKAGE, ROOT, all_faults

FAULTS = all_faults()


def rooms() -> set[str]:
    """Folders of the package with code in them."""
    files = [path for path in (ROOT / PACKAGE).rglob("*.py") if path.name != "__init__.py"]
    return {path.parent.relative_to(ROOT).as_posix() for path in files}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_one_line_of_a_file_that_has_it_once(fault):
    removed, added = ([line for line in fault.hunk if line.startswith(sign)] for sign in "-+")
    assert len(removed) <= 1 and len(added) <= 1 and len(removed) + len(added) > 0
    assert fault.subject and len(fault.subject) <= 120 and "\n" not in fault.subject
    assert fault.group == fault.room
    source = Path(ROOT, fault.file).read_text(encoding="utf-8")
    planted = fault.planted(source)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_of_its_area_are_there(fault):
    assert fault.tests
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert path.startswith("tests/") and (ROOT / path).exists(), test
        assert not name or f"def {name}(" in Path(ROOT, path).read_text(encoding="utf-8"), test


def test_a_fault_is_planted_wherever_its_line_stands_and_only_there():
    fault = FAULTS[0]
    right, wrong = ([line[1:] for line in fault.hunk if line[0] != sign] for sign in "+-")
    assert fault.planted("\n".join(["above", *right, "below"])) == "\n".join(["above", *wrong, "below"])
    for text in ("\n".join(right + right), "something else"):
        with pytest.raises(ValueError, match="not once"):
            fault.planted(text)


def test_the_pages_say_what_found_each():
    rows = [line for page in pages.PAGES for line in (pages.FOLDER / page).read_text(encoding="utf-8").splitlines()]
    for fault in FAULTS:
        (row,) = [row for row in rows if row.startswith(f"| {fault.subject} |")]
        assert pages.NOT_FOUND not in row


def test_no_room_is_without_a_fault():
    """Neither is a name given twice, nor are the faults too few to say much."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert rooms() - {str(Path(fault.file).parent) for fault in FAULTS} == set()
