"""Docstrings and comments of the package begin with a subject or an imperative, and counts have their nouns."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_names import FILES, ROOT

FRAGMENT = re.compile(r"(Of|The same|So many|Those|That|Its|Itself|By|As|At|With|Without)\b")
"""Words that leave open what a docstring speaks of."""
COMMENT = re.compile(r"([Oo]f|The same|So many)\b")
UNNAMED = re.compile(r"\bso\s+many\b(?!\s+(\w+\s+){0,3}that\b)", re.IGNORECASE)
"""A count that stands for an argument; "so many that" is a comparison."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the strings that are statements: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def comments(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of comments on lines of their own, those on neighbouring lines as one."""
    text, begin, last = "", 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.line.lstrip()[0] != "#":
            continue
        line, said = token.start[0], token.string.lstrip("# ")
        if line == last + 1:
            text += f" {said}"
        else:
            yield begin, text
            text, begin = said, line
        last = line
    yield begin, text


def unclear(path: Path) -> list[str]:
    """Lines of a file at which a docstring or comment is a fragment, or has a count without its noun."""
    source = path.read_text()
    return [
        f"{path.name}:{line}: {text.splitlines()[0]}"
        for fragment, said in ((FRAGMENT, docstrings(source)), (COMMENT, comments(source)))
        for line, text in said
        if fragment.match(text) or UNNAMED.search(text)
    ]


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in FILES}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_docstrings_and_comments_are_sentences(folder):
    assert [found for path in sorted(folder.glob("*.py")) for found in unclear(path)] == []


def test_a_fragment_is_found(tmp_path):
    page = tmp_path / "page.py"
    page.write_text(
        '"""Rows, so many that a pass pays; offsets of a graph."""\n\n'
        'SIDE = 32\n"""Of a tile."""\n\n'
        "# Bytes of a row, at\n# least so\n# many.\n"
        "LEAST = 8  # of a row\n"
        "# of a column\nMOST = 8\n\n\n"
        'def of(rows):\n    """The same of a class."""\n\n\n'
        'def cut(parts):\n    """Cut rows into so\n    many parts."""\n'
    )
    assert unclear(page) == [
        "page.py:4: Of a tile.",
        "page.py:15: The same of a class.",
        "page.py:19: Cut rows into so",
        "page.py:6: Bytes of a row, at least so many.",
        "page.py:10: of a column",
    ]
