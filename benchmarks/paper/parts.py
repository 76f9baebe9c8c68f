"""The four parts: what is measured in each, one place after the other, and what is made of it."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.layers.rgcn import graphs as relational
from benchmarks.paper import caches, counters, durations, misses, padding, thresholds
from benchmarks.paper.sheets import Sheet
from benchmarks.support import graphs, report, roofline, summary

Pause = Callable[[float], None]
"""Is told the seconds that went to something else than measuring."""


@dataclass(frozen=True)
class Place:
    """A graph, and the features of its operand; 0 where only the structure counts. relational: with relations."""

    graph: str
    features: int = 0
    relational: bool = False

    def __str__(self) -> str:
        words = f"{self.features} features" if self.features else "relations" * self.relational
        return ", ".join(filter(None, (self.graph, words)))

    @property
    def edges(self) -> int:
        return (relational.RECIPES if self.relational else graphs.RECIPES | misses.OWN)[self.graph].edges

    def load(self, seed: int) -> Any:
        """Raises graphs.Unavailable."""
        if self.relational:
            return relational.RECIPES[self.graph].load(seed)
        if self.graph in misses.OWN:
            own = misses.OWN[self.graph]
            return graphs.BenchmarkGraph.of(self.graph, own.origin, own.load(seed))
        return graphs.load(self.graph, seed)


@dataclass(frozen=True)
class Part:
    """measure: cells as plain values, of the graph of a place, within some seconds. axis, figure: labels."""

    title: str
    about: str
    wanted: Sequence[Place]
    measure: Callable[[Any, Place, float, Pause], list[dict]]
    sheets: Callable[[Sequence[dict]], list[Sheet]]
    panels: Callable[[Sequence[dict]], report.Panels]
    axis: str
    figure: str
    summarise: Callable[[Sequence[dict]], dict] = field(default=lambda cells: {"cells": len(cells), "wrong": []})


def of(name: str, options: argparse.Namespace) -> Part:
    """A part by its name."""
    return PARTS[name](options)


def _padding(options: argparse.Namespace) -> Part:
    exponents = options.exponents

    def measure(graph: Any, place: Place, share: float, pause: Pause) -> list[dict]:
        if place.relational:
            found = padding.measure_relational(graph, options.partitions, exponents)
        else:
            found = padding.measure(graph, padding.words_of(graph, options.partitions, exponents))
        return [{"graph": place.graph, "kind": "relational" if place.relational else "graph", **found}]

    wanted = [Place(name) for name in options.graphs]
    wanted += [Place(name, relational=True) for name in options.relational]
    about = "SparseTIR's tables 1 and 2: what each format stores of our graphs. Nothing is timed."
    axis, figure = "k of hyb(c, k)", "values stored for each non-zero"
    return Part("What formats pad", about, wanted, measure, padding.sheets, padding.panels, axis, figure)


def _misses(options: argparse.Namespace) -> Part:
    cache, why = caches.of_machine(), counters.why_none()
    how = f"The processor counts them, too. Simulated: {cache}" if why is None else f"Simulated ({why}): {cache}"
    about = (
        f"{how}; {options.sets} of {cache.levels[0][0]} sets of the first level, and those of the second with the same "
        "bits, each exactly. One thread, and no prefetching. Times are of all threads, with prefetching."
    )

    def measure(graph: Any, place: Place, share: float, pause: Pause) -> list[dict]:
        return misses.measure(graph, place.features, options.partitions, cache, options.sets, share, pause)

    names = [name for name in options.graphs if name in misses.MISSED]
    wanted = [Place(name, max(options.features)) for name in ([*names, *misses.OWN] if names else options.graphs)]
    return Part(
        "Cache misses by column partitions",
        "SparseTIR's figure 12: SpMM in column partitions, the c of hyb(c, k).",
        wanted,
        measure,
        functools.partial(misses.sheets, about=about),
        misses.panels,
        "column partitions",
        "multiple of one partition's",
    )


def _durations(options: argparse.Namespace) -> Part:
    limits = roofline.measure(options.threads)
    prepared: dict[str, durations.OnGraph] = {}

    def measure(graph: Any, place: Place, share: float, pause: Pause) -> list[dict]:
        if place.graph not in prepared:
            begin = time.perf_counter()
            prepared.clear()  # one at a time
            prepared[place.graph] = durations.OnGraph(graph, options.formats)
            pause(time.perf_counter() - begin)
        return [prepared[place.graph].measure(place.features, options.seed, limits, share, pause)]

    def summarise(cells: Sequence[Mapping]) -> dict:
        return summary.summarise(cells, ("graph", "features")) | {"over": durations.over(cells)}

    about = "A weighted sum, forward, float32. Contenders of a cell run interleaved, after their answers were compared."
    wanted = [Place(name, width) for name in options.graphs for width in options.features]
    return Part(
        "SpMM format by format",
        about,
        wanted,
        measure,
        durations.sheets,
        durations.panels,
        "graph",
        "best peer / ours",
        summarise,
    )


def _thresholds(options: argparse.Namespace) -> Part:
    def measure(graph: Any, place: Place, share: float, pause: Pause) -> list[dict]:
        return [thresholds.measure(graph, place.features, share, pause)]

    about = "Whether non-zeros of a row are reduced side by side, and what tasks hold equally many of."
    wanted = [Place(name, width) for name in options.graphs for width in options.widths]
    return Part(
        "Thresholds of Huang et al. beside the cost model",
        about,
        wanted,
        measure,
        thresholds.sheets,
        thresholds.panels,
        "features",
        "best / chosen",
        thresholds.summarise,
    )


SHARES = {"padding": 0.0, "misses": 0.15, "durations": 0.5, "thresholds": 0.35}
"""The share of the time for measurements."""
PARTS: Mapping[str, Callable[[argparse.Namespace], Part]] = {
    "padding": _padding,
    "misses": _misses,
    "durations": _durations,
    "thresholds": _thresholds,
}
