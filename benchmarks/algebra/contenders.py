"""Whoever can compute a cell. A contender makes of a problem a call, or says why it cannot. What a call returns is the
contender's own; ``in_our_order`` of the call brings it into the form of ``Problem.wanted``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse
import torch

from benchmarks.algebra import taco
from benchmarks.algebra.problem import Problem, chained, sampled
from benchmarks.support.cells import Unable

OURS = "gsb"
NOTES = {
    OURS: "a kernel of gnn_sparse_backend.tensor.compile, called with arrays in CSR and CSF",
    "taco": "C of the Tensor Algebra Compiler by its best schedule, cc -O3 -march=native -ffast-math -fopenmp",
    "scipy": "SciPy's CSR; products of tensors by matrices of their fibres",
    "torch": "PyTorch's CSR (MKL); products of tensors by matrices of their fibres",
}
CONTENDERS = tuple(NOTES)
Call = Callable[[], Any]


def call_of(name: str, problem: Problem) -> Call:
    """Raises Unable."""
    return {OURS: ours, "taco": taco.call_of, "scipy": _scipy, "torch": _torch}[name](problem)


def _with(call: Call, in_our_order: Callable[[Any], Any]) -> Call:
    call.in_our_order = in_our_order  # type: ignore[attr-defined]
    return call


def ours(problem: Problem) -> Call:
    from gnn_sparse_backend import tensor as st

    place, given = problem.place, problem.input
    names = [name for name in "BCDE" if f"{name}[" in place.expression]
    if place.operation.matrices > 1:
        operands = [st.array(matrix) for matrix in problem.matrices]
    else:
        format = ("dense", "compressed") if given.order == 2 else ("compressed",) * given.order
        operands = [st.array((given.coordinates, given.values), format, shape=given.shape), *problem.factors]
    arrays = {name: st.array(operand) for name, operand in zip(names, operands)}
    formats = place.operation.formats
    levels = formats[given.order] if formats else "csr" if place.operation.matrices > 1 else None
    kernel = st.compile(place.expression, format=levels, **arrays)

    def ordered(answer: Any) -> Any:
        if place.operation.matrices > 1:
            return answer.to_scipy()
        if formats is None:
            return np.asarray(answer.to_dense())
        values = np.asarray(answer.values)
        return values.reshape(-1, place.width) if place.op == "ttm" else values

    return _with(lambda: kernel(**arrays), ordered)


_SPARSE: dict[str, Callable] = {
    "add": lambda operands: operands[0] + operands[1],
    "add3": lambda operands: reduce(lambda a, b: a + b, operands),
    "spgemm": lambda operands: operands[0] @ operands[1],
}


def _scipy(problem: Problem) -> Call:
    op, given, factors = problem.place.op, problem.input, problem.factors
    if op in ("spmv", "spmm"):
        matrix = given.csr
        return lambda: matrix @ factors[0]
    if op == "sddmm":
        return lambda: sampled(given, factors) * given.values
    if problem.place.operation.matrices > 1:
        matrices = problem.matrices
        if op == "multiply":
            return _with(lambda: matrices[0].multiply(matrices[1]), scipy.sparse.csr_matrix)
        return lambda: _SPARSE[op](matrices)
    fibres = problem.fibres
    return (lambda: fibres[-1] @ factors[0]) if op in ("ttv", "ttm") else lambda: chained(given, fibres, factors)


def _csr(matrix: scipy.sparse.csr_matrix) -> torch.Tensor:
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return torch.sparse_csr_tensor(*parts, matrix.shape)


def _of_csr(answer: torch.Tensor) -> scipy.sparse.csr_matrix:
    parts = (answer.values(), answer.col_indices(), answer.crow_indices())
    return scipy.sparse.csr_matrix(tuple(part.numpy() for part in parts), tuple(answer.shape))


def _torch(problem: Problem) -> Call:
    op, given = problem.place.op, problem.input
    factors = [torch.from_numpy(factor) for factor in problem.factors]
    if op in ("spmv", "spmm"):
        matrix = _csr(given.csr)
        return _with(lambda: matrix @ factors[0], torch.Tensor.numpy)
    if op == "sddmm":
        matrix, turned = _csr(given.csr), factors[1].t()
        values = matrix.values()
        # the answer has the places of the matrix, and is one number for each
        return _with(
            lambda: torch.sparse.sampled_addmm(matrix, factors[0], turned, beta=0.0).values() * values,
            torch.Tensor.numpy,
        )
    if op == "multiply":
        raise Unable("PyTorch has no product of elements of two CSR matrices by MKL, and its own takes seconds")
    if problem.place.operation.matrices > 1:
        matrices = [_csr(matrix) for matrix in problem.matrices]
        return _with(lambda: _SPARSE[op](matrices), _of_csr)
    fibres = [_csr(matrix) for matrix in problem.fibres]
    if op in ("ttv", "ttm"):
        return _with(lambda: fibres[-1] @ factors[0], torch.Tensor.numpy)
    levels = [torch.from_numpy(coordinates).long() for _, coordinates in given.levels]

    def chain() -> torch.Tensor:
        found = fibres[-1] @ factors[-1]
        for matrix, factor, coordinates in zip(fibres[-2::-1], factors[-2::-1], levels[-2:0:-1]):
            found = matrix @ (found * factor[coordinates])
        return torch.zeros(given.shape[0], found.shape[1]).index_copy_(0, levels[0], found)

    return _with(chain, torch.Tensor.numpy)
