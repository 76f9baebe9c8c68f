"""The tables of the layers of both frameworks, on the terminal and in docs/layers/.

python -m tests.coverage                    both tables
python -m tests.coverage --framework dgl    one of them
python -m tests.coverage --write            the pages of docs/layers/
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from models.cli import MODULES, installed
from tests.coverage.compiled import run_compiled, run_without
from tests.coverage.report import ZOOS, Case, Outcome, compare, exceptions, run_pair

NAMES = {"dgl": "DGL", "pyg": "PyTorch Geometric"}
FOLDER = Path(__file__).parents[2] / "docs" / "layers"


@dataclass(frozen=True)
class Row:
    """A line of the table; ``differences`` must be empty."""

    case: Case
    outcome: Outcome
    differences: list[str]
    explained: dict[str, str]
    compiled: str = ""

    @property
    def fell_back(self) -> int:
        """Calls that the framework ran itself."""
        return sum(self.outcome.fallbacks.values())

    @property
    def excepted(self) -> int:
        """Those of them whose reason is explained."""
        return sum(calls for reason, calls in self.outcome.fallbacks.items() if reason in self.explained)

    @property
    def share(self) -> str:
        return _share(self.outcome.ours, self.outcome.ours + self.fell_back)

    @property
    def reasons(self) -> list[str]:
        return [
            f"{reason} ({calls})" + (f", {self.explained[reason]}" if reason in self.explained else "")
            for reason, calls in self.outcome.fallbacks.items()
        ]

    def cells(self) -> list[str]:
        rest = self.reasons + ([self.case.note] if self.case.note else [])
        counts = [str(self.outcome.ours), str(self.fell_back), self.share]
        return [self.case.name, *counts, self.compiled, "; ".join(rest)]


def _share(part: int, total: int) -> str:
    return f"{part / total:.0%}" if total else "-"


OTHERWISE = "compiled by PyTorch to something else, without the backend too"
HEADINGS = ("layer", "our kernels", "fell back", "share", "compiled", "reasons of the rest, notes")


def zoo(framework: str) -> Sequence[Case]:
    """The cases of ``framework``; raises ImportError where it is not installed."""
    return importlib.import_module(ZOOS[framework]).CASES


def walk(
    framework: str,
    progress: Callable[[Sequence[Case]], Sequence[Case]] = lambda cases: cases,
    compiled: bool = False,
) -> list[Row]:
    """Every case once, with the backend and without it, in the first of its types; and ``compiled``, if asked for."""
    modes = importlib.import_module(ZOOS[framework]).PAGES.get("modes", ())  # which have compilers of their own
    rows = []
    for case in progress(zoo(framework)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the framework's own deprecations
            with_backend, without = run_pair(framework, case)
            ran = run_compiled(framework, case) if compiled and case not in modes else None
        differences = compare(with_backend, without)
        words = str(ran or "")
        if ran is not None and ran.outcome is not None and (unlike := compare(ran.outcome, without)):
            if compare(ran.outcome, run_without(framework, case)):
                differences += [f"compiled: {each}" for each in unlike]
            else:
                words += "; " + OTHERWISE
        rows.append(Row(case, with_backend, differences, exceptions(framework, case), words))
    return rows


def summary(rows: Sequence[Row]) -> str:
    """How many calls ran on our kernels: of all, and of those that the table does not explain as none of ours."""
    ours, excepted = sum(row.outcome.ours for row in rows), sum(row.excepted for row in rows)
    calls = ours + sum(row.fell_back for row in rows)
    text = f"{len(rows)} cases; {ours:,} of {calls:,} calls on our kernels."
    if excepted:
        text += (
            f" Of the others {excepted:,} are left to the framework on purpose, as the table explains; "
            f"without those {_share(ours, calls - excepted)} are on our kernels."
        )
    return text


def pages(tables: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """{file name: text} of docs/layers/: an index, and a table for each page of a zoo."""
    index = [INTRODUCTION]
    found = {}
    for framework, rows in tables.items():
        title = f"{NAMES[framework]} {importlib.import_module(MODULES[framework]).__version__}"
        by_name = {row.case.name: row for row in rows}
        index += [f"## {title}", "", summary(rows), ""]
        for page, cases in importlib.import_module(ZOOS[framework]).PAGES.items():
            shown = [by_name[case.name] for case in cases]
            name = f"{framework}-{page}.md"
            found[name] = f"# {title}: {_words(page)}\n\n{summary(shown)}\n\n{_table(shown)}\n"
            index.append(f"- [{_words(page).capitalize()}]({name}): {len(shown)} cases")
        index.append("")
    return {"index.md": "\n".join(index), **found}


def _words(page: str) -> str:
    return page.replace("-", " ")


def _table(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, ("---", "--:", "--:", "--:", "---", "---"), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


INTRODUCTION = """\
# Layers of DGL and PyG

These pages are written by `python -m tests.coverage --write`. Every layer takes one training step (forward, a random
cotangent, backward) on a small graph, with the backend and without it, from the same seed. Outputs and all gradients
agree up to the order of sums. The tables count the calls that a layer made to the operators of its framework, forward
and backward: how many ran on compiled kernels, and how many were left to the framework, for the reason named.

*Compiled* is the same step under `torch.compile`, with the same results: how many calls ran on our kernels, counted
in the forward pass alone, and of how many programs. Where PyTorch makes *one* of the layer, `fullgraph=True` works.
Edge indices of PyG are made before that; sparse matrices, `EdgeIndex` and graphs of DGL are made in the step, where
making them may end a program. The column is empty for modes, which have compilers, transforms and hooks of their own.
A layer that PyTorch cannot compile without the backend either is *not compiled by PyTorch*; where what it compiles
gives other results than the eager layer without the backend too (it leaves out PyG's hooks on messages), the table
says so.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all equal; 1: a layer gives other results with the backend; 2: bad input."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--framework", choices=ZOOS, help="default: every one that is installed")
    parser.add_argument("--compiled", action="store_true", help="compile every layer as well, which takes half an hour")
    parser.add_argument("--write", action="store_true", help="write docs/layers/, with all of the tables")
    args = parser.parse_args(arguments)
    if args.write and args.framework:
        parser.error("docs/layers/ has the tables of all frameworks: leave --framework out")
    frameworks = [args.framework] if args.framework else list(ZOOS)
    absent = [each for each in frameworks if not installed(each)]
    if absent and (args.write or args.framework):
        parser.error(f"{', '.join(NAMES[each] for each in absent)} is not installed")

    from rich import box
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    console, tables = Console(), {}
    for framework in (each for each in frameworks if each not in absent):
        title = NAMES[framework]
        progress = partial(track, description=title, console=Console(stderr=True))
        tables[framework] = walk(framework, progress, args.compiled or args.write)
        table = Table(*HEADINGS, title=title, box=box.SIMPLE_HEAD, pad_edge=False)
        for column in table.columns[1:4]:
            column.justify = "right"
        for row in tables[framework]:
            table.add_row(*row.cells())
        console.print(table, markup=False)
    wrong = [(framework, row) for framework, rows in tables.items() for row in rows if row.differences]
    for framework, row in wrong:
        print(f"error: {NAMES[framework]}, {row.case.name}: {'; '.join(row.differences)}", file=sys.stderr)
    if args.write and not wrong:
        for name, text in pages(tables).items():
            (FOLDER / name).write_text(text, encoding="utf-8")
    return 1 if wrong else 0
