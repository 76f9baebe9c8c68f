"""One cell of the SpMM benchmark: the operands, and an independent check of a contender's answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse
import torch

from benchmarks.support.graphs import BenchmarkGraph

CHECKED_COLUMNS = 8
LARGE_GRAPH_EDGES = 10_000_000
"""Of larger graphs a quarter of the columns is checked, which still takes seconds."""
CHECKED_EDGES = 4096


@dataclass(frozen=True)
class Mode:
    """What a cell computes: y = A x, weighted or not, and with ``backward`` its gradients to x and to the weights.

    reduce: "sum"; unweighted also "mean" and "max" of the neighbours of each row, 0 where there are none.
    dtype: of all values.
    """

    weighted: bool
    backward: bool
    reduce: str = "sum"
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        what = self.reduce if self.reduce != "sum" else "weighted" if self.weighted else "unweighted"
        return f"{what} {'forward+backward' if self.backward else 'forward'}"

    @property
    def results(self) -> tuple[str, ...]:
        if not self.backward:
            return ("y",)
        return ("y", "dx", "dweight") if self.weighted else ("y", "dx")


MODES = tuple(
    Mode(weighted, backward, reduce)
    for backward in (False, True)
    for weighted, reduce in ((False, "sum"), (True, "sum"), (False, "mean"), (False, "max"))
)


@dataclass(frozen=True)
class Operands:
    """Random float32 values that the modes of one graph and width share: x (n_src, F), weight (E,), cotangent (n_dst,
    F).
    """

    x: torch.Tensor
    weight: torch.Tensor
    cotangent: torch.Tensor

    @classmethod
    def random(cls, graph: BenchmarkGraph, features: int, seed: int = 0) -> Operands:
        generator = torch.Generator().manual_seed(seed)
        rows, columns = graph.shape
        return cls(
            torch.randn(columns, features, generator=generator),
            torch.rand(graph.num_edges, generator=generator) + 0.5,
            torch.randn(rows, features, generator=generator),
        )


@dataclass(frozen=True)
class Problem:
    """The operands of a cell, in the type of its mode.

    x: (n_src, F). weight: (E,) in CSR order, or None. cotangent: (n_dst, F), or None without backward.
    """

    graph: BenchmarkGraph
    mode: Mode
    x: torch.Tensor
    weight: torch.Tensor | None
    cotangent: torch.Tensor | None

    @classmethod
    def of(cls, graph: BenchmarkGraph, mode: Mode, operands: Operands) -> Problem:
        def leaf(tensor):
            return tensor.detach().to(mode.dtype).requires_grad_(mode.backward)

        return cls(
            graph,
            mode,
            leaf(operands.x),
            leaf(operands.weight) if mode.weighted else None,
            operands.cotangent.to(mode.dtype) if mode.backward else None,
        )

    def to(self, dtype: torch.dtype) -> Problem:
        """The same values in another type, as leaves of their own."""
        operands = Operands(*(None if x is None else x.detach() for x in (self.x, self.weight, self.cotangent)))
        return Problem.of(self.graph, replace(self.mode, dtype=dtype), operands)

    @property
    def width(self) -> int:
        return self.x.shape[1]

    @property
    def result_bytes(self) -> int:
        """Bytes of all results together."""
        rows, columns = self.graph.shape
        values = {"y": rows * self.width, "dx": columns * self.width, "dweight": self.graph.num_edges}
        return self.mode.dtype.itemsize * sum(values[name] for name in self.mode.results)

    @property
    def leaves(self) -> tuple[torch.Tensor, ...]:
        return (self.x,) if self.weight is None else (self.x, self.weight)

    @cached_property
    def _checks(self) -> list[tuple[np.ndarray | tuple, np.ndarray, np.ndarray]]:
        """For each result: which of its entries are checked, their float64 values, and the error allowed to each."""
        if self.mode.reduce == "max":
            return self._max_checks()
        graph = self.graph
        x = self.x.detach().float().numpy()
        if self.mode.reduce == "mean":
            weight = graph.mean_weights.astype(np.float64)
        else:
            weight = np.ones(graph.num_edges) if self.weight is None else self.weight.detach().double().numpy()
        matrix = scipy.sparse.csr_matrix((weight, graph.indices, graph.indptr), shape=graph.shape)
        features = x.shape[1]
        columns = self._columns
        checks = [self._product(matrix, np.diff(graph.indptr), x, columns)]
        if self.cotangent is not None:
            cotangent = self.cotangent.float().numpy()
            # by columns as it stands: a large transpose takes longer than the product
            checks.append(
                self._product(matrix.T, np.bincount(graph.indices, minlength=graph.shape[1]), cotangent, columns)
            )
            if self.weight is not None:
                edges = (
                    np.unique(np.linspace(0, graph.num_edges - 1, CHECKED_EDGES).astype(int))
                    if graph.num_edges
                    else np.empty(0, int)
                )
                rows = np.searchsorted(graph.indptr, edges, side="right") - 1
                terms = cotangent[rows].astype(np.float64) * x[graph.indices[edges]]
                checks.append(
                    (edges, terms.sum(1), self._allowance(np.full(len(edges), features), np.abs(terms).sum(1)))
                )
        return checks

    def _product(
        self, matrix: scipy.sparse.spmatrix, terms: np.ndarray, dense: np.ndarray, columns: np.ndarray
    ) -> tuple:
        """terms: of each row of the matrix, whose values are not negative."""
        part = dense[:, columns].astype(np.float64)
        return (slice(None), columns), matrix @ part, self._allowance(terms[:, None], matrix @ np.abs(part))

    @property
    def _columns(self) -> np.ndarray:
        """The columns of y and dx that are checked."""
        count = CHECKED_COLUMNS if self.graph.num_edges <= LARGE_GRAPH_EDGES else CHECKED_COLUMNS // 4
        return np.unique(np.linspace(0, self.width - 1, count).astype(int))

    def _allowance(self, terms: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
        """``allowance``; frameworks round messages to a half type as well as the result, each by half an eps at
        most.
        """
        rounding = 0.0 if self.mode.dtype is torch.float32 else torch.finfo(self.mode.dtype).eps
        return allowance(terms, magnitude) + rounding * magnitude

    def _max_checks(self) -> list[tuple]:
        """A maximum is exact, and its gradient goes to the source that it came from (equal ones share it)."""
        graph, x = self.graph, self.x.detach().float().numpy()
        columns = self._columns
        y = np.zeros((graph.shape[0], len(columns)))
        dx, terms = np.zeros((graph.shape[1], len(columns))), np.zeros((graph.shape[1], len(columns)))
        degrees = np.diff(graph.indptr)
        rows = np.flatnonzero(degrees)
        starts, degrees = graph.indptr[rows], degrees[rows]
        for at, column in enumerate(columns if len(rows) else ()):
            values = x[graph.indices, column]
            y[rows, at] = largest = np.maximum.reduceat(values, starts)
            if self.cotangent is not None:
                attained = values == np.repeat(largest, degrees)
                # parallel edges of one source attain it together
                share = self.cotangent.double().numpy()[rows, column] / np.add.reduceat(
                    attained, starts, dtype=np.int64
                )
                parts, sources = np.repeat(share, degrees)[attained], graph.indices[attained]
                dx[:, at] = np.bincount(sources, parts, graph.shape[1])
                terms[:, at] = np.bincount(sources, np.abs(parts), graph.shape[1])
        where = (slice(None), columns)
        checks = [(where, y, np.zeros_like(y))]
        if self.cotangent is not None:
            checks.append((where, dx, self._allowance(np.full(dx.shape, graph.shape[0]), terms)))
        return checks

    def mismatch(self, results: tuple) -> str | None:
        """None if ``results`` (y, then dx and dweight where the mode has them) are right, else what is wrong.

        Compared with SciPy in float64 on a sample of columns (y, dx) and edges (dweight). An entry may be off by the
        rounding of a float32 sum of its terms in any order; in a half type also by the rounding of each term and of the
        result.
        """
        if len(results) != len(self.mode.results):
            return f"{len(results)} results instead of {len(self.mode.results)}"
        for name, result, (where, expected, allowed) in zip(self.mode.results, results, self._checks):
            given = result.detach().float().numpy() if isinstance(result, torch.Tensor) else np.asarray(result)
            shape = {
                "y": (self.graph.shape[0], self.x.shape[1]),
                "dx": tuple(self.x.shape),
                "dweight": (self.graph.num_edges,),
            }[name]
            if given.shape != shape:
                return f"{name} has shape {given.shape} instead of {shape}"
            wrong = ~(np.abs(given[where] - expected) <= allowed)
            if wrong.any():
                return f"{name} is wrong in {int(wrong.sum())} of {wrong.size} entries checked"
        return None


def allowance(terms: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """Bound on the error of a float32 sum of rounded products: random-walk growth, with a factor of 8 to spare.

    The worst case is terms * eps * magnitude (Higham, Accuracy and Stability, section 4.2); it would hide bugs on hubs.
    """
    return 8 * np.sqrt(terms + 1) * np.finfo(np.float32).eps * magnitude + 1e-30
