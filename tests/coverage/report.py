"""Every layer of a framework with and without the backend: equal results, and how much of it ran on our kernels.

    python -m tests.coverage                    both tables
    python -m tests.coverage --framework dgl    one of them
    python -m tests.coverage --write            the pages of docs/layers/

A zoo (``dgl/layers.py``, ``pyg/layers.py``) is a list of cases. A case builds a module that holds its inputs as
parameters, so that gradients of inputs and of weights have names and are compared alike:

    Case("GraphConv", lambda: Bound(GraphConv(6, 4), x=features(8, 6)), lambda m: m.layer(graph, m.x))

A zoo also has ``EXCEPTIONS``: {name of a case, or "*": {"operator: reason": why it cannot be a kernel of ours}}, and
``PAGES``: {name of a page of docs/layers/: its cases}.

A case is one training step: forward, a random cotangent for every output, backward. It runs twice from the same seed.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from models.cli import MODULES, installed

ZOOS = {"dgl": "tests.coverage.dgl.layers", "pyg": "tests.coverage.pyg.layers"}
NAMES = {"dgl": "DGL", "pyg": "PyTorch Geometric"}
FOLDER = Path(__file__).parents[2] / "docs" / "layers"

# The least share of calls on our kernels that every case must reach, the explained exceptions of its zoo left out.
# None: nothing is required.
REQUIRED_SHARE: dict[str, float | None] = {"dgl": 0.95, "pyg": 0.95}

# Two orders of the same sums, relative to the largest value of the array.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}
# An array that is zero but for rounding (the gradient of a bias before a normalisation) has no scale of its own: its
# largest value counts as at least this. The inputs and cotangents of a case are of order one.
SMALLEST_SCALE = 1e-2

Counters = dict[str, tuple[int, dict[str, int]]]  # operator -> (calls on our kernels, {reason: calls fallen back})


@dataclass(frozen=True)
class Case:
    """One layer with one choice of arguments.

    ``build()`` makes the module, inputs included (see `Bound`); it may draw from the global generators, which are
    seeded. ``call(module)`` returns the outputs. Everything floating is cast to the type under test after ``build``.
    """

    name: str
    build: Callable[[], nn.Module]
    call: Callable[[nn.Module], Tensor | tuple[Tensor, ...]]
    note: str = ""
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Outcome:
    """What one training step left behind."""

    outputs: tuple[Tensor, ...]
    gradients: dict[str, Tensor | None]  # by name of the parameter or input; None: the output does not depend on it
    buffers: dict[str, Tensor]  # running statistics and other state of the module after the step
    counters: Counters = field(default_factory=dict)

    @property
    def ours(self) -> int:
        """Calls that ran on our kernels."""
        return sum(ran for ran, _ in self.counters.values())

    @property
    def fallbacks(self) -> dict[str, int]:
        """{"operator: reason": calls} of what the framework ran itself."""
        return {
            f"{operator}: {reason}": calls
            for operator, (_, reasons) in sorted(self.counters.items())
            for reason, calls in sorted(reasons.items())
        }


class Bound(nn.Module):
    """A layer (or None, for a function) and its inputs: floating tensors become parameters, others buffers."""

    def __init__(self, layer: nn.Module | None = None, /, **inputs: Tensor) -> None:
        super().__init__()
        self.layer = layer
        for name, value in inputs.items():
            if value.is_floating_point():
                self.register_parameter(name, nn.Parameter(value.detach().clone()))
            else:
                self.register_buffer(name, value, persistent=False)


def features(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64, the same ones for the same shape and seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run_case(framework: str, case: Case, seed: int, dtype: torch.dtype | None = None, backward: bool = True) -> Outcome:
    """One training step of ``case`` with the backend as it is now, on or off; counts of ``framework`` alone.

    Args:
        dtype: Of all floating parameters, inputs and buffers; by default the first of ``case.dtypes``.
        backward: False stops after the forward pass; the gradients are then None.

    The seed fixes ``torch``, ``numpy``, ``random`` and DGL's own generator, at ``build`` and again at ``call``.
    """
    _seed(framework, seed)
    module = case.build().to(dtype or case.dtypes[0])
    _seed(framework, seed + 1)
    reset_status()
    outputs = case.call(module)
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    # Copies: a reversible layer frees its outputs' memory in the backward pass.
    kept = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in outputs)
    roots = [(each, cotangent) for each, cotangent in zip(outputs, cotangents(outputs, seed)) if cotangent is not None]
    if roots and backward:
        torch.autograd.backward(*zip(*roots))
    calls = gsb.status().to_dict()["calls"].get(framework, {})
    return Outcome(
        outputs=kept,
        gradients={name: each.grad for name, each in module.named_parameters()},
        buffers={name: each.detach().clone() for name, each in module.named_buffers()},
        counters={operator: (row["ours"], row["fallbacks"]) for operator, row in calls.items()},
    )


def cotangents(outputs: Sequence[Tensor], seed: int) -> list[Tensor | None]:
    """Standard normal numbers for every output that has a gradient, None for the others.

    Zero where an output is infinite or NaN: DGL's maximum of no messages is an infinity, whose cotangent its gradient
    hands to whatever node or edge has number 0.
    """
    generator = torch.Generator().manual_seed(seed + 2)
    return [
        torch.randn(each.shape, generator=generator, dtype=torch.float64)
        .to(each.dtype)
        .masked_fill(~each.detach().isfinite(), 0.0)
        if each.requires_grad
        else None
        for each in outputs
    ]


def run_pair(framework: str, case: Case, seed: int = 0, dtype: torch.dtype | None = None) -> tuple[Outcome, Outcome]:
    """`run_case` with the backend on, and with it off, in the order of `compare`. Off runs first."""
    gsb.disable()
    without = run_case(framework, case, seed, dtype)
    with gsb.enabled(framework):
        with_backend = run_case(framework, case, seed, dtype)
    return with_backend, without


def compare(with_backend: Outcome, without: Outcome) -> list[str]:
    """Every difference beyond the order of sums, in words; empty if the two agree."""
    found = []
    if len(with_backend.outputs) != len(without.outputs):
        return [f"{len(with_backend.outputs)} outputs instead of {len(without.outputs)}"]
    for position, pair in enumerate(zip(with_backend.outputs, without.outputs)):
        found += _differences(f"output {position}", *pair)
    for kind, one, other in (
        ("gradient of", with_backend.gradients, without.gradients),
        ("buffer", with_backend.buffers, without.buffers),
    ):
        if one.keys() != other.keys():
            found.append(f"{kind} other names: {sorted(one.keys() ^ other.keys())}")
        for name in one.keys() & other.keys():
            found += _differences(f"{kind} {name}", one[name], other[name])
    return found


def shortfall(framework: str, case: Case, outcome: Outcome) -> str | None:
    """Why the share of calls on our kernels is below what is required of ``framework``, or None."""
    required = REQUIRED_SHARE[framework]
    if required is None:
        return None
    explained = exceptions(framework, case)
    missing = {reason: calls for reason, calls in outcome.fallbacks.items() if reason not in explained}
    total = outcome.ours + sum(missing.values())
    if outcome.ours >= required * total:
        return None
    return f"{outcome.ours} of {total} calls on our kernels, at least {required:.0%} required; the others: {missing}"


def exceptions(framework: str, case: Case) -> dict[str, str]:
    """{"operator: reason": why it cannot be ours} for ``case``."""
    table = importlib.import_module(ZOOS[framework]).EXCEPTIONS
    return {**table.get("*", {}), **table.get(case.name, {})}


def _differences(name: str, one: Tensor | None, other: Tensor | None) -> list[str]:
    """Where the tensor ``one``, with the backend, is not ``other``."""
    if one is None or other is None:
        return [] if one is other else [f"{name}: {'missing' if one is None else 'not there without the backend'}"]
    for what, a, b in [
        ("type", type(one).__name__, type(other).__name__),
        *(
            (what, getattr(one, what), getattr(other, what))
            for what in ("dtype", "shape", "device", "layout", "requires_grad")
        ),
    ]:
        if a != b:
            return [f"{name}: {what} {a} instead of {b}"]
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    elif other.is_contiguous() and not one.is_contiguous():
        return [f"{name}: strides {one.stride()} instead of {other.stride()}"]
    if not one.is_floating_point():
        return [] if torch.equal(one, other) else [f"{name}: other values"]
    tolerance = TOLERANCE[one.dtype]
    one, other = one.detach().double(), other.detach().double()
    finite = other.isfinite()
    marks = lambda values: values.nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0)
    if not (torch.equal(finite, one.isfinite()) and torch.equal(marks(one[~finite]), marks(other[~finite]))):
        return [f"{name}: infinities or NaN in other places"]
    if not finite.any():
        return []
    one, other = one[finite], other[finite]
    error = (one - other).abs().max().item() / max(other.abs().max().item(), SMALLEST_SCALE)
    return [] if error <= tolerance else [f"{name}: differs by {error:.1e} of its scale, {tolerance:.0e} allowed"]


def _seed(framework: str, seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if framework == "dgl":
        import dgl

        dgl.seed(seed)


# --- the tables ---------------------------------------------------------------------------------------------------


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
    from tests.coverage.compiled import run_compiled

    modes = importlib.import_module(ZOOS[framework]).PAGES.get("modes", ())  # which have compilers of their own
    rows = []
    for case in progress(zoo(framework)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the framework's own deprecations
            with_backend, without = run_pair(framework, case)
            ran = run_compiled(framework, case) if compiled and case not in modes else None
        differences = compare(with_backend, without)
        if ran is not None and ran.outcome is not None:
            differences += [f"compiled: {each}" for each in compare(ran.outcome, without)]
        rows.append(Row(case, with_backend, differences, exceptions(framework, case), str(ran or "")))
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
in the forward pass alone, and of how many programs. Where PyTorch makes *one* of the layer, `fullgraph=True` works. A
layer that PyTorch cannot compile without the backend either is *not compiled by PyTorch*.
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
