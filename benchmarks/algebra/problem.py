"""What is computed: an expression of an input and operands of its own, its right answer, and what it takes at least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.algebra.inputs import Input
from benchmarks.operators.work import INDEX_BYTES, VALUE_BYTES, Work, streamed

TOLERANCE = 2e-5
"""Of an answer in float32: the largest difference to float64, relative to the largest number that is wanted."""

ELEMENT = INDEX_BYTES + VALUE_BYTES


@dataclass(frozen=True)
class Operation:
    """An expression, to be read with B (or A) as the sparse input.

    expressions: for each order of the input that it takes. result: format of the result, for each order; None: dense.
    widths: of the dense operands; 1 where they have none. matrices: how many sparse matrices there are.
    """

    expressions: dict[int, str]
    widths: tuple[int, ...] = (1,)
    matrices: int = 1
    formats: dict[int, tuple[str, ...]] | None = None


FIBRES = {order: ("compressed",) * (order - 1) for order in (3, 4)}
OPERATIONS: dict[str, Operation] = {
    "spmv": Operation({2: "A[i] = B[i,j] * C[j]"}),
    "spmm": Operation({2: "A[i,r] = B[i,j] * C[j,r]"}, (32, 128)),
    "sddmm": Operation({2: "A[i,j] = B[i,j] * C[i,r] * D[j,r]"}, (32, 128), formats={2: ("dense", "compressed")}),
    "add": Operation({2: "A[i,j] = B[i,j] + C[i,j]"}, matrices=2),
    "add3": Operation({2: "A[i,j] = B[i,j] + C[i,j] + D[i,j]"}, matrices=3),
    "multiply": Operation({2: "A[i,j] = B[i,j] * C[i,j]"}, matrices=2),
    "spgemm": Operation({2: "A[i,j] = B[i,k] * C[k,j]"}, matrices=2),
    "ttv": Operation({3: "A[i,j] = B[i,j,k] * C[k]", 4: "A[i,j,k] = B[i,j,k,l] * C[l]"}, formats=FIBRES),
    "ttm": Operation(
        {3: "A[i,j,r] = B[i,j,k] * C[k,r]", 4: "A[i,j,k,r] = B[i,j,k,l] * C[l,r]"},
        (32,),
        formats={order: (*levels, "dense") for order, levels in FIBRES.items()},
    ),
    "mttkrp": Operation(
        {3: "A[i,r] = B[i,j,k] * C[j,r] * D[k,r]", 4: "A[i,r] = B[i,j,k,l] * C[j,r] * D[k,r] * E[l,r]"}, (32,)
    ),
}
KINDS = {
    "spmv": "SpMV",
    "spmm": "SpMM, SDDMM",
    "sddmm": "SpMM, SDDMM",
    "add": "addition, product",
    "add3": "addition, product",
    "multiply": "addition, product",
    "spgemm": "SpGEMM",
    "ttv": "TTV, TTM, MTTKRP",
    "ttm": "TTV, TTM, MTTKRP",
    "mttkrp": "TTV, TTM, MTTKRP",
}
"""The kinds of operations whose means are told."""


@dataclass(frozen=True)
class Place:
    """A cell: an operation on an input, at a width."""

    op: str
    input: Input
    width: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.op} of {self.input.name}" + (f", {self.width} wide" if self.width > 1 else "")

    @property
    def operation(self) -> Operation:
        return OPERATIONS[self.op]

    @property
    def expression(self) -> str:
        return self.operation.expressions[self.input.order]


class Problem:
    """The operands of a place, made when they are first used. All values are float32."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.input = place.input

    @cached_property
    def factors(self) -> list[np.ndarray]:
        """The dense operands, in the order of the expression."""
        rng = np.random.default_rng(self.place.seed + 1)
        modes = {"spmv": [1], "spmm": [1], "sddmm": [0, 1], "ttv": [-1], "ttm": [-1]}
        modes["mttkrp"] = list(range(1, self.input.order))
        shapes = [self.input.shape[mode] for mode in modes.get(self.place.op, ())]
        vectors = self.place.op in ("spmv", "ttv")
        return [rng.standard_normal(n if vectors else (n, self.place.width), np.float32) for n in shapes]

    @cached_property
    def matrices(self) -> list[scipy.sparse.csr_matrix]:
        """The sparse operands of an operation on several: half of the elements of each are those of the first."""
        found = [self.input.csr]
        rows, columns = self.input.shape
        rng = np.random.default_rng(self.place.seed + 2)
        for _ in range(1, self.place.operation.matrices):
            if self.place.op == "spgemm":
                found.append(self.input.csr.copy() if rows == columns else self.input.csr.T.tocsr())
                continue
            at = self.input.coordinates.astype(np.int64)
            moved = rng.random(at.shape[1]) < 0.5
            at[1, moved] = (at[1, moved] + 1 + rng.integers(columns - 1, size=moved.sum())) % columns
            keys = np.unique(at[0] * columns + at[1])
            values = rng.standard_normal(len(keys), np.float32)
            found.append(scipy.sparse.csr_matrix((values, (keys // columns, keys % columns)), (rows, columns)))
        for matrix in found:
            matrix.sort_indices()
        return found

    @cached_property
    def fibres(self) -> list[scipy.sparse.csr_matrix]:
        """Matrices whose product is the tensor: of ones for each mode but the last, and one of the values. Rows are
        positions of the mode before, columns those of the mode, or its coordinates where it is the last.
        """
        levels, found = self.input.levels, []
        for depth in range(1, self.input.order):
            offsets, coordinates = levels[depth]
            last = depth == self.input.order - 1
            columns = coordinates if last else np.arange(len(coordinates), dtype=np.int32)
            values = self.input.values if last else np.ones(len(coordinates), np.float32)
            width = self.input.shape[-1] if last else len(coordinates)
            found.append(scipy.sparse.csr_matrix((values, columns, offsets), (len(offsets) - 1, width)))
        return found

    @cached_property
    def wanted(self) -> Any:
        """The answer in float64: an array, or a matrix where the result is sparse and has places of its own."""
        factors, op = [factor.astype(np.float64) for factor in self.factors], self.place.op
        if op in ("spmv", "spmm"):
            return self.input.csr.astype(np.float64) @ factors[0]
        if op == "sddmm":
            return sampled(self.input, factors) * self.input.values
        if op in _OF_MATRICES:
            return _OF_MATRICES[op]([matrix.astype(np.float64) for matrix in self.matrices])
        fibres = [matrix.astype(np.float64) for matrix in self.fibres]
        if op in ("ttv", "ttm"):
            return fibres[-1] @ factors[0]
        return chained(self.input, fibres, factors)

    def mismatch(self, answer: Any) -> str | None:
        """What is wrong with an answer in the form of ``wanted``; None if it is right."""
        wanted = self.wanted
        if scipy.sparse.issparse(wanted):
            if answer.shape != wanted.shape:
                return f"is of shape {answer.shape} instead of {wanted.shape}"
            difference, largest = abs(answer.astype(np.float64) - wanted).max(), abs(wanted).max()
        else:
            if np.shape(answer) != wanted.shape:
                return f"is of shape {np.shape(answer)} instead of {wanted.shape}"
            difference, largest = np.abs(answer - wanted).max(initial=0), np.abs(wanted).max(initial=0)
        off = float(difference) / max(float(largest), 1e-30)
        return f"is off by {off:.1e} of the largest number" if not off <= TOLERANCE else None

    def work(self) -> Work:
        """Bytes and operations. Of a factored product of a tensor: each fibre is summed before it is multiplied."""
        op, width, nnz, shape = self.place.op, self.place.width, self.input.nnz, self.input.shape
        if op in _OF_MATRICES:
            return self._work_of_matrices()
        positions = [len(coordinates) for _, coordinates in self.input.levels]
        structure = nnz + (shape[0] + 1 if self.input.order == 2 else 2 * sum(positions[:-1]) + 1)
        work = streamed(nnz + structure)
        rows = {"spmv": shape[0], "spmm": shape[0], "mttkrp": shape[0]}.get(op, nnz if op == "sddmm" else positions[-2])
        work += streamed(rows * (1 if op == "sddmm" else width))
        # a factor is gathered for each position of its mode; the left one of a sampled product is read once
        met = {"sddmm": [shape[0], nnz], "mttkrp": positions[1:]}.get(op, [nnz])
        for mode, (factor, count) in enumerate(zip(self.factors, met)):
            touched = min(count, len(factor))
            flops = 0 if op == "sddmm" and mode == 0 else 2 * count * width
            work += Work(touched * width * VALUE_BYTES, count * width * VALUE_BYTES, flops)
        return work

    def _work_of_matrices(self) -> Work:
        stored = sum(matrix.nnz for matrix in self.matrices) + self.wanted.nnz
        rows = (len(self.matrices) + 1) * (self.input.shape[0] + 1)
        work = Work(stored * ELEMENT + rows * INDEX_BYTES, stored * ELEMENT + rows * INDEX_BYTES, stored)
        if self.place.op == "spgemm":
            left, right = self.matrices
            products = int(np.diff(right.indptr)[left.indices].sum())
            return Work(work.compulsory, work.gather + products * ELEMENT, 2 * products)
        return work


_OF_MATRICES: dict[str, Callable[[list], Any]] = {
    "add": lambda matrices: matrices[0] + matrices[1],
    "add3": lambda matrices: reduce(lambda a, b: a + b, matrices),
    "multiply": lambda matrices: matrices[0].multiply(matrices[1]),
    "spgemm": lambda matrices: matrices[0] @ matrices[1],
}


def sampled(given: Input, factors: list[np.ndarray]) -> np.ndarray:
    """(nnz,) dot products of the rows of two factors, in pieces that fit a cache."""
    found = np.empty(given.nnz, factors[0].dtype)
    for begin in range(0, given.nnz, 1 << 14):
        rows, columns = given.coordinates[:, begin : begin + (1 << 14)]
        found[begin : begin + (1 << 14)] = np.einsum("er,er->e", factors[0][rows], factors[1][columns])
    return found


def chained(given: Input, fibres: list, factors: list[np.ndarray]) -> np.ndarray:
    """(rows, width) an MTTKRP along the first mode: the innermost fibres first, each sum times its factor's row."""
    found = fibres[-1] @ factors[-1]
    for matrix, factor, (_, coordinates) in zip(fibres[-2::-1], factors[-2::-1], given.levels[-2:0:-1]):
        found = matrix @ (found * factor[coordinates])
    out = np.zeros((given.shape[0], found.shape[1]), found.dtype)
    out[given.levels[0][1]] = found
    return out
