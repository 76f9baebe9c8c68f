"""Every page is short, and what it shows runs and prints what the page says."""

from __future__ import annotations

import re
from contextlib import ExitStack
from unittest.mock import patch

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.language.reduction import REDUCTIONS
from gnn_sparse_backend.formats.composed.registry import FORMATS
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.ops.core import executable, library
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.cpu import strategies
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.planner.plan import STRATEGIES
from tests.docs.blocks import LANGUAGES, ROOT, command, run_page

DOCS = sorted((ROOT / "docs").rglob("*.md"))
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, *RESULTS]
LONGEST = 12 * 1024


ADDED_TO = REDUCTIONS, library.OPERATORS, executable._builders, STRATEGIES, FORMATS
"""Tables that a page may add to: what it does is gone behind it."""


def _name(page) -> str:
    return str(page.relative_to(ROOT))


def _languages(page) -> list[str]:
    """The languages of the fenced blocks."""
    return re.findall(r"^ *```(.*)\n(?:.*\n)*? *```$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_is_short(page):
    assert len(page.read_bytes()) <= LONGEST


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_says_what_it_is(page):
    assert set(_languages(page)) <= LANGUAGES


@pytest.mark.parametrize("page", [page for page in PAGES if any(_languages(page))], ids=_name)
def test_what_a_page_shows_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plans = PlanDatabase(tmp_path / "plans.json")
    plans.set_units(DEFAULT_UNITS)  # no time goes into calibrating
    reset_status()
    for name in gsb.__all__:
        getattr(gsb, name)  # all operators of the package are registered now
    with ExitStack() as stack:
        stack.callback(gsb.disable)
        for entries in ADDED_TO:
            stack.enter_context(patch.dict(entries))
        stack.enter_context(patch.object(strategies, "STRATEGIES", strategies.STRATEGIES))
        stack.enter_context(database.using(plans))
        run_page(page)


@pytest.mark.parametrize("page", [ROOT / "README.md", *RESULTS], ids=_name)
def test_links_lead_somewhere(page):
    """Of the pages that are read on their own; MkDocs checks those of docs/."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [page for page in PAGES if "decisions" not in page.parts], ids=_name)
def test_files_that_a_page_names_exist(page):
    for named in re.findall(r"`([\w/]+/\w+\.(?:py|h))`", page.read_text()):
        assert (ROOT / named).exists() or any((ROOT / "gnn_sparse_backend").rglob(named)), named


@pytest.mark.parametrize("name", ["pipeline", "speedup"])
def test_pictures_have_colours_for_the_dark(name):
    style = (ROOT / "docs" / f"{name}.svg").read_text().partition("</style>")[0]
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    coloured = re.findall(r"^ *([.\w-]+) \{[^}]*(?:fill|stroke): #", light, re.MULTILINE)
    assert len(coloured) > 4 and ".ground" in coloured
    for each in coloured:
        assert re.search(rf"(?<![\w-]){re.escape(each)}[ ,]", dark), each


def test_ci_runs_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    for line in ("make demo", "make test"):
        assert re.search(rf"^{line}\b", (ROOT / "README.md").read_text(), re.MULTILINE)
        assert re.search(rf"^{line}\b", script, re.MULTILINE)


def test_every_public_name_is_in_the_reference():
    text = "".join(page.read_text() for page in DOCS if page.parent.name == "reference")
    described = set(re.findall(r"^::: gnn_sparse_backend\.(\w+)$", text, re.MULTILINE))
    assert described == set(gsb.__all__) - {"__version__"}


def _write(folder, text):
    page = folder / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    "text, words",
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "Expected"),
        ("```text\n2\n```\n", "follows no block"),
        ("```python\n1 / 0\n```\n", "division by zero"),
        ("```sh\nmake nothing-of-the-kind\n```\n", "there is no make"),
        ("```sh\nmake test NONE=1\n```\n", "does not read NONE"),
        ("```sh\npip install -e '.[none]'\n```\n", "no extra"),
        ("```sh\npytest tests/none\n```\n", "there is no tests/none"),
        ("```sh\npython -m models.none\n```\n", "no module models.none"),
        ("```sh\npython -m models.graphsage --none\n```\n", "no option --none"),
        ("```sh\nrm -r none\n```\n", "no rule"),
    ],
)
def test_a_page_that_is_wrong_is_found(tmp_path, text, words):
    with pytest.raises(Exception, match=words):
        run_page(_write(tmp_path, text))


def test_a_page_that_is_right_is_left_alone(tmp_path):
    run_page(_write(tmp_path, "```python\nprint(1, 2)\n```\n\n```text\n1 ...\n```\n\n```\nnot run\n```\n"))


def test_what_gsb_prints_can_be_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(["gsb", "cache", "verify"]).endswith("all good\n")
