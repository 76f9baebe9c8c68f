"""How much formats pad (SparseTIR, tables 1 and 2): by counting, for graphs too large to be stored in most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.layers.rgcn.graphs import RelationalGraph
from benchmarks.operators.work import VALUE_BYTES
from benchmarks.paper.sheets import Sheet
from benchmarks.support import report
from benchmarks.support.graphs import BenchmarkGraph
from gnn_sparse_backend import formats
from gnn_sparse_backend.formats.hyb import default_exponent

PLAIN = ("csr", "ell", "bsr(4)", "bsr(8)", "bsr(16)", "bsr(32)", "dbsr(32)", "sr_bcrs(8, 4)", "dia")
PARTITIONS = (1, 2, 4, 8, 16)
EXPONENTS = (1, 3, 5)
"""k of hyb(c, k), beside the default of the paper: the logarithm of the mean row, rounded up."""
DRAWN = 3
"""Graphs of each kind in the figure."""
MOST_STORED = 1 << 26
"""Values up to which a format is made, to weigh it; beyond, they are counted alone."""
CLASSES: Mapping[str, Any] = {
    "csr": formats.CsrFormat,
    "ell": formats.EllFormat,
    "bsr": formats.BsrFormat,
    "dbsr": formats.DbsrFormat,
    "sr_bcrs": formats.SrBcrsFormat,
    "dia": formats.DiaFormat,
    "hyb": formats.HybFormat,
}


def words_of(graph: BenchmarkGraph, partitions: Sequence[int], exponents: Sequence[int]) -> list[str]:
    """The formats that are counted for a graph."""
    own = default_exponent(graph.num_edges, graph.shape[0])
    return [*PLAIN, *(f"hyb({c}, {k})" for c in partitions for k in sorted({*exponents, own}))]


def measure(graph: BenchmarkGraph, words: Sequence[str]) -> dict:
    """The values that each format stores, and its bytes where it was made; as plain values."""
    found = {}
    for word in words:
        stored = slots(word, graph)
        found[word] = {
            "stored": stored,
            "padding": stored / graph.num_edges - 1,
            "bytes": nbytes(word, graph) if stored <= MOST_STORED else None,
        }
    return {
        **{key: graph.describe()[key] for key in ("origin", "rows", "edges", "mean_degree", "max_in_degree")},
        "default": f"hyb(1, {default_exponent(graph.num_edges, graph.shape[0])})",
        "formats": found,
    }


def measure_relational(graph: RelationalGraph, partitions: Sequence[int], exponents: Sequence[int]) -> dict:
    """Padding of 3-D hyb: a hyb(c, k) for each relation, all with one k."""
    found = {}
    mean = default_exponent(graph.num_edges, max(int(graph.pairs[0].sum()), 1))
    for c in partitions:
        lengths = relational_lengths(graph, c)
        for k in sorted({*exponents, mean}):
            stored = bucketed(lengths, k)
            found[f"hyb({c}, {k})"] = {"stored": stored, "padding": stored / graph.num_edges - 1, "bytes": None}
    described = graph.describe()
    return {
        **{key: described[key] for key in ("origin", "relations", "edges", "destination_pairs", "max_in_degree")},
        "rows": graph.nodes,
        "default": f"hyb(1, {mean})",
        "formats": found,
    }


def parse(word: str) -> tuple[str, tuple[int, ...]]:
    """A format's name and its numbers."""
    kind, _, rest = word.partition("(")
    return kind, tuple(int(number) for number in rest.rstrip(")").split(",") if number)


def nbytes(word: str, graph: BenchmarkGraph) -> int | None:
    """Bytes of the structure, its maps and masks, and of float32 values. None where the format refuses."""
    kind, numbers = parse(word)
    given = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), graph.shape
    block = () if kind in ("csr", "ell", "dia") else numbers if kind == "hyb" else (_square(numbers),)
    try:
        made = CLASSES[kind].from_csr(*given, *block, check=False)
    except ValueError:  # more diagonals, or values, than it takes without being asked
        return None
    return made.nbytes + made.num_slots * VALUE_BYTES


def slots(word: str, graph: BenchmarkGraph) -> int:
    """The values that a format stores, padding included."""
    kind, numbers = parse(word)
    return COUNTS[kind](graph, *numbers)


def bucketed(lengths: np.ndarray, k: int) -> int:
    """Values of rows of these lengths in buckets of up to 2^k: full parts, and a rest in the bucket of its length."""
    rest = lengths & ((1 << k) - 1)
    widths = np.where(rest > 0, 1 << np.ceil(np.log2(np.maximum(rest, 1))).astype(np.int64), 0)
    return int(((lengths >> k) << k).sum() + widths.sum())


def row_lengths(graph: BenchmarkGraph, partitions: int) -> np.ndarray:
    """(pieces,) non-zeros of each row in each column partition that has any."""
    if partitions == 1:
        return np.diff(graph.indptr).astype(np.int64)
    return _lengths(_rows(graph), graph.indices, graph.shape, partitions)


def relational_lengths(graph: RelationalGraph, partitions: int) -> np.ndarray:
    """(pieces,) non-zeros of each row of each relation in each column partition that has any."""
    shape = graph.num_relations * graph.nodes, graph.nodes
    return _lengths(graph.relation * graph.nodes + graph.destination, graph.source, shape, partitions)


def _lengths(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int], partitions: int) -> np.ndarray:
    width = max(-(-shape[1] // partitions), 1)
    return np.unique(rows.astype(np.int64) * partitions + columns // width, return_counts=True)[1]


def _rows(graph: BenchmarkGraph) -> np.ndarray:
    return np.repeat(np.arange(graph.shape[0], dtype=np.int64), np.diff(graph.indptr))


def _square(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(numbers) * (2 if len(numbers) == 1 else 1)


def _ell(graph: BenchmarkGraph) -> int:
    return graph.shape[0] * int(np.diff(graph.indptr).max(initial=0))


def _blocks(graph: BenchmarkGraph, *block: int) -> int:
    height, width = _square(block)
    grid = -(-graph.shape[1] // width)
    return len(np.unique(_rows(graph) // height * grid + graph.indices // width)) * height * width


def _vectors(graph: BenchmarkGraph, height: int, group: int) -> int:
    """Columns of tiles of ``height`` rows, in groups of ``group`` (SR-BCRS: Li et al., Magicube, SC 2022)."""
    tiles = np.unique(_rows(graph) // height * graph.shape[1] + graph.indices) // graph.shape[1]
    return int((-(-np.bincount(tiles.astype(np.int64)) // group)).sum()) * group * height


def _diagonals(graph: BenchmarkGraph) -> int:
    return len(np.unique(graph.indices.astype(np.int64) - _rows(graph))) * graph.shape[0]


COUNTS: Mapping[str, Callable[..., int]] = {
    "csr": lambda graph: graph.num_edges,
    "ell": _ell,
    "bsr": _blocks,
    "dbsr": _blocks,
    "sr_bcrs": _vectors,
    "dia": _diagonals,
    "hyb": lambda graph, c, k: bucketed(row_lengths(graph, c), k),
}


def sheets(cells: Sequence[Mapping]) -> list[Sheet]:
    """Padding and bytes, by kind of graph."""
    found = []
    for kind, title in (("graph", "graphs"), ("relational", "relational graphs, a hyb for each relation")):
        mine = [cell for cell in cells if cell["kind"] == kind]
        words = list(dict.fromkeys(word for cell in mine for word in cell["formats"]))
        names = [f"{cell['graph']}" for cell in mine]
        if not mine:
            continue
        share = [[word, *(_percent(cell["formats"].get(word)) for cell in mine)] for word in words]
        note = (
            "Stored values that are no non-zeros, in per cent of the non-zeros. The k that the paper takes, of the "
            "mean row: " + ", ".join(f"{cell['graph']} {cell['default']}" for cell in mine) + "."
        )
        found.append(Sheet(f"Padding of {title}, %", ["format", *names], share, notes=[note]))
        if kind == "graph":
            weight = [[word, *(_megabytes(cell["formats"].get(word)) for cell in mine)] for word in words]
            note = f"Structure, masks, maps of values and float32 values. {report.MISSING}: too large to be made."
            found.append(Sheet(f"Megabytes of {title}", ["format", *names], weight, notes=[note]))
    return found


def _percent(entry: Mapping | None) -> str:
    if entry is None:
        return report.MISSING
    share = 100 * entry["padding"]
    return f"{share:,.0f}" if abs(share) >= 100 else f"{share:.1f}"


def _megabytes(entry: Mapping | None) -> str:
    return report.MISSING if entry is None or entry["bytes"] is None else f"{entry['bytes'] / 1e6:.2f}"


def panels(cells: Sequence[Mapping]) -> report.Panels:
    """Values stored for each non-zero against k, a line for each c, of the largest graphs of each kind."""
    found: dict[str, dict[str, list]] = {}
    for kind, mark in (("graph", ""), ("relational", ", 3-D")):
        mine = sorted((cell for cell in cells if cell["kind"] == kind), key=lambda cell: -cell["edges"])
        for cell in mine[:DRAWN]:
            lines = found.setdefault(cell["graph"] + mark, {})
            for word, entry in cell["formats"].items():
                name, numbers = parse(word)
                if name == "hyb":
                    lines.setdefault(f"c = {numbers[0]}", []).append((numbers[1], 1 + entry["padding"]))
    return {title: {label: sorted(points) for label, points in lines.items()} for title, lines in found.items()}
