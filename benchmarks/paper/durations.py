"""SpMM format by format, against what users have: torch CSR, DGL and PyG, interleaved; conversion apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from benchmarks.operators import peers
from benchmarks.operators.problem import Mode, Operands, Problem
from benchmarks.operators.suite import CannotDo, Contender
from benchmarks.operators.work import spmm_work
from benchmarks.paper.sheets import Sheet
from benchmarks.support import cells, report, summary
from benchmarks.support.cells import Unable
from benchmarks.support.graphs import BenchmarkGraph
from benchmarks.support.roofline import Roofline
from benchmarks.support.summary import OURS
from benchmarks.support.timing import Rules, interleaved
from gnn_sparse_backend import Graph, composed_spmm, formats
from gnn_sparse_backend.formats.composed.spec import SEPARATOR

MODE = Mode(weighted=True, backward=False)
"""What formats store are values: edges have weights."""
FORMATS = (
    "csr",
    "coo",
    "ell(4) + csr",
    "bsr(4)",
    "bsr(8)",
    "dbsr(8)",
    "sr_bcrs(8, 4)",
    "dia",
    "hyb(1, 3)",
    "hyb(1, 5)",
)
MORE_FORMATS = ("hyb(2, 3)", "hyb(4, 3)", "bsr(8) + csr")
MOST = 16
"""Stored values for each non-zero beyond which a format cannot be fast, and is not made."""
RULES = {"hopeless": 8.0, "slow": 4.0, "long_rounds": 3}


class InFormat(peers.TorchContender):
    """A product in a format, or in several, as a user asks for it."""

    def __init__(self, words: str) -> None:
        self.words, self.name = words, f"{OURS} {words}"
        self.note = f'gsb.composed_spmm of gsb.formats.decompose(graph, "{words}"), values packed before'

    def prepare(self, graph: BenchmarkGraph) -> None:
        structure = Graph.from_csr(torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), graph.shape)
        try:
            self.parts = formats.decompose(structure, self.words.split(SEPARATOR))
        except ValueError as refusal:
            raise CannotDo(str(refusal)) from refusal
        stored = self.parts.num_slots / max(graph.num_edges, 1)
        if stored > MOST:
            raise CannotDo(f"stores {stored:.0f} values for each non-zero")

    def forward(self, problem: Problem) -> Callable[[], torch.Tensor]:
        parts, packed, x = self.parts, self.parts.pack(problem.weight), problem.x
        return lambda: composed_spmm(parts, packed, x, packed=True)


def contenders(words: Sequence[str]) -> list[Contender]:
    """Ours as it chooses itself, ours in each format, and the peers."""
    others = [peers.DGL(), peers.TorchCSR(torch.int32), peers.PyGScatter(), peers.PyGEdgeIndex()]
    return [peers.Ours(), *map(InFormat, words), *others]


class OnGraph:
    """The contenders of a graph, prepared once for all widths. unable: who is not, and why."""

    def __init__(self, graph: BenchmarkGraph, words: Sequence[str]) -> None:
        self.graph = graph
        self.running = {each.name: each for each in contenders(words)}
        self.notes = {name: each.note for name, each in self.running.items()}
        found = cells.answers(self.running, self._prepared, lambda answer: None)
        self.seconds, self.unable = found.prepared, found.unable

    def _prepared(self, name: str) -> Callable[[], None]:
        try:
            self.running[name].prepare(self.graph)
        except CannotDo as reason:
            raise Unable(str(reason)) from reason
        return lambda: None

    def measure(self, width: int, seed: int, limits: Roofline, budget: float, pause: Callable[[float], None]) -> dict:
        """A cell as plain values, times in seconds. pause: is told the seconds that checking the answers took."""
        begin = time.perf_counter()
        problem = Problem.of(self.graph, MODE, Operands.random(self.graph, width, seed))
        names = [name for name in self.running if name not in self.unable]
        found = cells.answers(names, partial(self._call, problem), problem.mismatch)
        pause(time.perf_counter() - begin)
        timed = interleaved(found.calls, Rules(budget_s=budget, **RULES))
        timings = {name: timing.to_dict() for name, timing in timed.items()}
        ours = [name for name in self.running if name.startswith(OURS)]
        work = spmm_work(self.graph.pattern, width, weighted=True)
        where = f"{self.graph.name}, {width} features"
        return {
            "graph": self.graph.name,
            "features": width,
            **cells.rate(where, timings, ours, limits, work, wrong=found.wrong),
            "unable": self.unable | found.unable,
            "conversion": self.seconds,
        }

    def _call(self, problem: Problem, name: str) -> Callable[[], tuple]:
        try:
            return self.running[name].bind(problem)
        except CannotDo as reason:
            raise Unable(str(reason)) from reason


def over(measured: Sequence[Mapping]) -> dict[str, dict[str, float | None]]:
    """For each contender of ours its mean ratio to each peer, over the cells that have both."""
    names = dict.fromkeys(name for cell in measured for name in cell["timings"])
    ours, others = ([n for n in names if n.startswith(OURS) == mine] for mine in (True, False))

    def mean(own: str, peer: str) -> float | None:
        both = [cell["timings"] for cell in measured if {own, peer} <= cell["timings"].keys()]
        return summary.mean_or_none(each[peer]["median"] / each[own]["median"] for each in both)

    return {own: {peer: mean(own, peer) for peer in others} for own in ours}


def sheets(measured: Sequence[Mapping]) -> list[Sheet]:
    """Times by width, ratios to each peer, and conversion: a line for each contender, a column for each graph."""
    names = list(dict.fromkeys(name for cell in measured for name in (*cell["timings"], *cell["unable"])))
    names.sort(key=lambda name: not name.startswith(OURS))
    found = []
    for width in dict.fromkeys(cell["features"] for cell in measured):
        mine = [cell for cell in measured if cell["features"] == width]
        rows = [[name, *(report.median(cell, name) for cell in mine)] for name in names]
        rows.append(["best peer", *(cell["best_peer"] or report.MISSING for cell in mine)])
        rows.append(["our best", *((cell["best_ours"] or report.MISSING) for cell in mine)])
        rows.append(["ratio", *(_number(cell["speedup"]) for cell in mine)])
        rows.append([f"ratio of {OURS}", *(_number(_of_choice(cell)) for cell in mine)])
        rows.append(["roofline", *(report.percent(cell["roofline_compulsory"]) for cell in mine)])
        found.append(Sheet(f"Milliseconds at {width} features", ["", *(cell["graph"] for cell in mine)], rows))
    ratios = over(measured)
    others = list(next(iter(ratios.values()), {}))
    mean = _number(summary.mean_or_none(cell["speedup"] for cell in measured))
    notes = [
        "Above: medians. Ratio: the best peer over our best, which is known in hindsight alone; below it, "
        "over what gsb.spmm chooses. Roofline: the time in which the bytes that must be moved "
        f"pass at the measured bandwidth, over our best. {report.MISSING}: not made, since it stores more than {MOST} "
        "values for each non-zero, or refuses. ~: fewer than 5 samples.",
        f"The best peer of each cell over our best, geometric mean of all cells: {mean}.",
    ]
    rows = [[own, *(_number(ratios[own][peer]) for peer in others)] for own in ratios]
    found.append(Sheet("Geometric means of peer over ours", ["ours", *others], rows, notes=notes))
    first = list({cell["graph"]: cell for cell in measured}.values())
    rows = [[name, *(report.milliseconds(cell["conversion"].get(name)) for cell in first)] for name in names]
    note = "What is made of the CSR arrays once per graph, in no time above; gsb's has the transpose's statistics, too."
    found.append(Sheet("Conversion, ms", ["", *(cell["graph"] for cell in first)], rows, notes=[note]))
    return found


def _of_choice(cell: Mapping) -> float | None:
    """The best peer over ours as it chooses itself."""
    both = [cell["timings"].get(name) for name in (cell["best_peer"], OURS)]
    return None if None in both else both[0]["median"] / both[1]["median"]


def _number(value: float | None) -> str:
    return report.MISSING if value is None else f"{value:.2f}"


def panels(measured: Sequence[Mapping]) -> report.Panels:
    """The best peer over each of ours, by graph."""
    found: dict[str, dict[str, list]] = {}
    for cell in measured:
        peer = cell["timings"].get(cell["best_peer"])
        for name, timing in cell["timings"].items():
            if name.startswith(OURS) and peer is not None:
                lines = found.setdefault(f"{cell['features']} features", {}).setdefault(name, [])
                lines.append((cell["graph"], peer["median"] / timing["median"]))
    return found
