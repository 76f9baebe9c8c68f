"""The parts of a long run have each case once."""

from __future__ import annotations

import pytest

from tests.selection import in_part, part_of


def test_parts_have_each_case_once():
    cases = [f"tests/a/test_b.py::test_c[{n}]" for n in range(4000)]
    parts = [[case for case in cases if in_part(case, *part_of(f"{n}/7"))] for n in range(1, 8)]
    assert sorted(case for part in parts for case in part) == sorted(cases)
    assert all(400 < len(part) < 750 for part in parts)
    assert all(in_part(case, *part_of("1/1")) for case in cases)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/2/3"])
def test_what_is_no_part(text):
    with pytest.raises(ValueError):
        part_of(text)
