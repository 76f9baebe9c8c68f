"""One cell of the SDDMM benchmark: the operands, and an independent check of a contender's answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from benchmarks.operators.problem import allowance
from benchmarks.operators.work import VALUE_BYTES, Pattern, Work, gathered, sddmm_work, spmm_work, streamed, structure
from benchmarks.support.graphs import BenchmarkGraph

CHECKED_EDGES = 4096
CHECKED_ROWS = 512


@dataclass(frozen=True)
class Mode:
    """What a cell computes for every edge (i, j): "dot" sum_k u[i, k] v[j, k], or "add" u[i] + v[j]; with ``backward``
    also the gradients to u and v.
    """

    op: str
    backward: bool

    @property
    def name(self) -> str:
        return f"{self.op} {'forward+backward' if self.backward else 'forward'}"

    @property
    def results(self) -> tuple[str, ...]:
        return ("y", "du", "dv") if self.backward else ("y",)


MODES = tuple(Mode(op, backward) for backward in (False, True) for op in ("dot", "add"))


def work(pattern: Pattern, width: int, mode: Mode, itemsize: int = VALUE_BYTES) -> Work:
    """The least that must be done. itemsize: bytes of a value."""
    if mode.op == "dot":
        total = sddmm_work(pattern, width, itemsize)
        if mode.backward:
            total += spmm_work(pattern, width, weighted=True, itemsize=itemsize)
            total += spmm_work(pattern.transpose, width, weighted=True, itemsize=itemsize)
        return total
    values = pattern.nnz * width
    total = (
        structure(pattern)
        + gathered(pattern, width, itemsize)
        + streamed(pattern.rows * width + values, values, itemsize)
    )
    if mode.backward:
        # the cotangents of the edges are read once by each of the two sums
        total += streamed(2 * values + (pattern.rows + pattern.columns) * width, 2 * values, itemsize)
    return total


@dataclass(frozen=True)
class Operands:
    """Random values that the modes of one graph and width share: u (n_dst, F), v (n_src, F); seed of the cotangents."""

    u: torch.Tensor
    v: torch.Tensor
    seed: int

    @classmethod
    def random(cls, graph: BenchmarkGraph, features: int, seed: int = 0) -> Operands:
        generator = torch.Generator().manual_seed(seed)
        rows, columns = graph.shape
        return cls(
            torch.randn(rows, features, generator=generator), torch.randn(columns, features, generator=generator), seed
        )


@dataclass(frozen=True)
class Problem:
    """The float32 operands of a cell. u: (n_dst, F). v: (n_src, F). cotangent: like the result, or None."""

    graph: BenchmarkGraph
    mode: Mode
    u: torch.Tensor
    v: torch.Tensor
    cotangent: torch.Tensor | None

    @classmethod
    def of(cls, graph: BenchmarkGraph, mode: Mode, operands: Operands) -> Problem:
        def leaf(tensor):
            return tensor.detach().requires_grad_(mode.backward)

        cotangent = None
        if mode.backward:
            shape = (graph.num_edges,) if mode.op == "dot" else (graph.num_edges, operands.u.shape[1])
            cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(operands.seed + 1))
        return cls(graph, mode, leaf(operands.u), leaf(operands.v), cotangent)

    @property
    def width(self) -> int:
        return self.u.shape[1]

    @property
    def result_bytes(self) -> int:
        """Bytes of all results together."""
        edges = self.graph.num_edges * (1 if self.mode.op == "dot" else self.width)
        return 4 * (edges + (sum(self.graph.shape) * self.width if self.mode.backward else 0))

    @property
    def leaves(self) -> tuple[torch.Tensor, ...]:
        return self.u, self.v

    @cached_property
    def _checks(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each result: which of its rows are checked, their float64 values, and the error allowed to each."""
        graph = self.graph
        u, v = (x.detach().numpy() for x in self.leaves)
        edges = (
            np.unique(np.linspace(0, graph.num_edges - 1, CHECKED_EDGES).astype(int))
            if graph.num_edges
            else np.empty(0, int)
        )
        rows = np.searchsorted(graph.indptr, edges, side="right") - 1
        ends = u[rows].astype(np.float64), v[graph.indices[edges]].astype(np.float64)
        if self.mode.op == "dot":
            terms = ends[0] * ends[1]
            checks = [(edges, terms.sum(1), allowance(np.full(len(edges), self.width), np.abs(terms).sum(1)))]
        else:
            checks = [
                (edges, ends[0] + ends[1], allowance(np.full(ends[0].shape, 2), np.abs(ends[0]) + np.abs(ends[1])))
            ]
        if self.cotangent is not None:
            of_edges = graph.edge_index
            checks += [
                self._gradient(of_edges[1], of_edges[0], graph.shape[0], v),
                self._gradient(of_edges[0], of_edges[1], graph.shape[1], u),
            ]
        return checks

    def _gradient(self, ends: np.ndarray, others: np.ndarray, count: int, other: np.ndarray) -> tuple:
        """Some rows of the gradient to the operand at ``ends``."""
        chosen = np.unique(np.linspace(0, count - 1, CHECKED_ROWS).astype(int))
        place = np.full(count, -1)
        place[chosen] = np.arange(len(chosen))
        edges = np.flatnonzero(place[ends] >= 0)
        terms = self.cotangent.numpy()[edges].astype(np.float64)
        if self.mode.op == "dot":
            terms = terms[:, None] * other[others[edges]]
        total, magnitude = np.zeros((len(chosen), self.width)), np.zeros((len(chosen), self.width))
        np.add.at(total, place[ends[edges]], terms)
        np.add.at(magnitude, place[ends[edges]], np.abs(terms))
        number = np.bincount(place[ends[edges]], minlength=len(chosen))[:, None]
        return chosen, total, allowance(number, magnitude)

    def mismatch(self, results: tuple) -> str | None:
        """None if ``results`` (y, then du and dv where the mode has them) are right on a sample of rows, else what is
        wrong. An entry may be off by the rounding of a float32 sum of its terms in any order, and no more.
        """
        if len(results) != len(self.mode.results):
            return f"{len(results)} results instead of {len(self.mode.results)}"
        y = (self.graph.num_edges,) if self.mode.op == "dot" else (self.graph.num_edges, self.width)
        shapes = {"y": y, "du": tuple(self.u.shape), "dv": tuple(self.v.shape)}
        for name, result, (where, expected, allowed) in zip(self.mode.results, results, self._checks):
            given = result.detach().numpy()
            if given.shape != shapes[name]:
                return f"{name} has shape {given.shape} instead of {shapes[name]}"
            wrong = ~(np.abs(given[where] - expected) <= allowed)
            if wrong.any():
                return f"{name} is wrong in {int(wrong.sum())} of {wrong.size} entries checked"
        return None
