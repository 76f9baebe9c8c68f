"""Sparse matrices and tensors of the sizes and skews of known data sets, by their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
from rich.console import Console

from benchmarks.support import graphs
from benchmarks.support.graphs import Unavailable


@dataclass(frozen=True, eq=False)
class Input:
    """A sparse tensor of order 2 to 5.

    coordinates: (order, nnz) int32, different ones in lexicographic order. values: (nnz,) float32.
    """

    name: str
    origin: str
    shape: tuple[int, ...]
    coordinates: np.ndarray
    values: np.ndarray

    @property
    def order(self) -> int:
        return len(self.shape)

    @property
    def nnz(self) -> int:
        return self.coordinates.shape[1]

    @cached_property
    def levels(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(offsets, coordinates), int32, of each mode, compressed as in CSF."""
        begins = [np.zeros(1, np.int64)]
        for depth in range(self.order):
            prefix = self.coordinates[: depth + 1]
            changes = (prefix[:, 1:] != prefix[:, :-1]).any(0)
            begins.append(np.concatenate([[0], np.flatnonzero(changes) + 1]))
        found = []
        for depth in range(self.order):
            above, here = (np.append(begins[depth + n], self.nnz) for n in (0, 1))
            offsets = np.searchsorted(here, above).astype(np.int32)
            found.append((offsets, self.coordinates[depth, begins[depth + 1]]))
        return found

    @cached_property
    def csr(self) -> scipy.sparse.csr_matrix:
        """A matrix as SciPy stores it."""
        rows, columns = self.coordinates
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.shape[0]))]).astype(np.int32)
        return scipy.sparse.csr_matrix((self.values, columns, indptr), self.shape)

    def describe(self) -> dict:
        return {
            "name": self.name,
            "origin": self.origin,
            "shape": list(self.shape),
            "nnz": self.nnz,
            "positions": [len(coordinates) for _, coordinates in self.levels],
        }


def _of_graph(name: str) -> Callable[[int], Input]:
    def load(seed: int) -> Input:
        graph = graphs.load(name, seed)
        coordinates = np.stack([np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr)), graph.indices])
        return of_keys(name, graph.origin, graph.shape, np.ravel_multi_index(tuple(coordinates), graph.shape), seed)

    return load


def _uniform(seed: int) -> Input:
    shape, nnz = (50_000, 50_000), 2_000_000
    return of_keys("uniform", "generated, every place as likely", shape, _drawn(shape, (1.0, 1.0), nnz, seed), seed)


def like(name: str, origin: str, shape: tuple[int, ...], nnz: int, skew: tuple[float, ...]) -> Callable[[int], Input]:
    return lambda seed: of_keys(name, origin, shape, _drawn(shape, skew, nnz, seed), seed)


def of_keys(name: str, origin: str, shape: tuple[int, ...], keys: np.ndarray, seed: int) -> Input:
    """Normal values at the places with these row-major numbers, each once."""
    coordinates = np.stack(np.unravel_index(np.unique(keys), shape)).astype(np.int32)
    values = np.random.default_rng(seed).standard_normal(coordinates.shape[1], np.float32)
    return Input(name, origin, tuple(shape), coordinates, values)


def _drawn(shape: tuple[int, ...], skew: tuple[float, ...], nnz: int, seed: int) -> np.ndarray:
    """``nnz`` different row-major numbers. Of a mode of n, n u^s is drawn, and its numbers mixed."""
    rng = np.random.default_rng(seed)
    labels = [rng.permutation(extent) for extent in shape]
    keys = np.empty(0, np.int64)
    while len(keys) < nnz:
        count = nnz + nnz // 4 - len(keys)
        drawn = [
            label[(extent * rng.random(count) ** power).astype(np.int64)]
            for extent, power, label in zip(shape, skew, labels)
        ]
        keys = np.unique(np.concatenate([keys, np.ravel_multi_index(tuple(drawn), shape)]))
    return rng.permutation(keys)[:nnz]


MATRICES: dict[str, Callable[[int], Input]] = {
    "uniform": _uniform,
    "wordnet": _of_graph("wordnet"),
    "arxiv": _of_graph("arxiv"),
    "debian": _of_graph("debian"),
    "community": _of_graph("community"),
    "power-law": _of_graph("power-law"),
}
TENSORS: dict[str, Callable[[int], Input]] = {
    "facebook": like(
        "facebook", "generated at the size of FROSTT's facebook", (1_591, 63_891, 63_890), 737_934, (1.5, 2.0, 2.0)
    ),
    "nell-2": like(
        "nell-2",
        "generated at the shape of FROSTT's nell-2, 10 million of its 77 million elements",
        (12_092, 9_184, 28_818),
        10_000_000,
        (2.0, 2.0, 2.0),
    ),
    "nips": like(
        "nips", "generated at the size of FROSTT's nips", (2_482, 2_862, 14_036, 17), 3_101_609, (1.2, 1.5, 2.0, 1.0)
    ),
}
SMALL: dict[str, Callable[[int], Input]] = {
    "small-matrix": like("small-matrix", "generated", (300, 200), 2_000, (1.5, 1.0)),
    "small-tensor": like("small-tensor", "generated", (40, 30, 50), 3_000, (1.5, 1.0, 2.0)),
    "small-of-4": like("small-of-4", "generated", (12, 9, 14, 5), 900, (1.0, 1.5, 1.0, 1.0)),
}
INPUTS = {**MATRICES, **TENSORS, **SMALL}


def load_available(names: Iterable[str], seed: int, console: Console) -> tuple[list[Input], dict[str, str]]:
    """The inputs whose data are here, and for each of the others the reason, which is printed too."""
    found, skipped = [], {}
    for name in names:
        try:
            found.append(INPUTS[name](seed))
        except Unavailable as missing:
            skipped[name] = str(missing)
            console.print(f"[yellow]{name} skipped:[/] {missing}")
    return found, skipped
