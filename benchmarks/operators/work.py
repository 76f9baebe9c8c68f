"""The bytes that sparse and dense operators must move, and the operations that they must do.

Two byte counts bound a sparse operator. *Compulsory*: the structure, every row that some edge needs once, and the
output once, as if the cache were infinite. *Gather*: the same with a row per edge, as if there were no cache. A
measured time lies above the compulsory bound; how far below the gather bound shows how much locality was used.

Everything is counted for int32 indices, and for values of 4 bytes unless told otherwise: a lower bound for wider ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

INDEX_BYTES = VALUE_BYTES = 4


@dataclass(frozen=True)
class Work:
    """Bytes and operations of one call. ``compulsory`` and ``gather`` are bytes, as defined above."""

    compulsory: int
    gather: int
    flops: int

    def __add__(self, other: Work) -> Work:
        return Work(self.compulsory + other.compulsory, self.gather + other.gather, self.flops + other.flops)


NOTHING = Work(0, 0, 0)


@dataclass(frozen=True)
class Pattern:
    """What counts of a CSR structure: its size, and the distinct rows and columns that its ``nnz`` edges touch."""

    rows: int
    columns: int
    nnz: int
    touched_rows: int
    touched_columns: int

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int]) -> Pattern:
        return cls(
            *shape,
            len(indices),
            int(np.count_nonzero(np.diff(indptr))),
            int(np.count_nonzero(np.bincount(indices, minlength=1))),
        )

    @property
    def transpose(self) -> Pattern:
        return Pattern(self.columns, self.rows, self.nnz, self.touched_columns, self.touched_rows)

    @property
    def structure_bytes(self) -> int:
        return (self.rows + 1 + self.nnz) * INDEX_BYTES


def gathered(pattern: Pattern, width: int, itemsize: int = VALUE_BYTES) -> Work:
    """Reading a row of ``width`` values of the column of every edge."""
    row = width * itemsize
    return Work(pattern.touched_columns * row, pattern.nnz * row, 0)


def streamed(values: int, flops: int = 0, itemsize: int = VALUE_BYTES) -> Work:
    """Reading or writing so many values once, with so many operations."""
    return Work(values * itemsize, values * itemsize, flops)


def structure(pattern: Pattern) -> Work:
    """Reading ``indptr`` and ``indices`` once."""
    return Work(pattern.structure_bytes, pattern.structure_bytes, 0)


def spmm_work(pattern: Pattern, width: int, *, weighted: bool, itemsize: int = VALUE_BYTES) -> Work:
    """One SpMM of ``width`` features.

    An unweighted edge costs one addition per feature, a weighted one a multiplication as well.
    """
    work = structure(pattern) + gathered(pattern, width, itemsize)
    work += streamed(pattern.rows * width, pattern.nnz * width * (2 if weighted else 1), itemsize)
    return work + streamed(pattern.nnz, itemsize=itemsize) if weighted else work


def sddmm_work(pattern: Pattern, width: int, itemsize: int = VALUE_BYTES) -> Work:
    """One SDDMM, the gradient of an SpMM to its weights: each edge is the dot product of two rows of ``width``.

    The rows of the left operand are streamed once, those of the right one gathered.
    """
    return (
        structure(pattern)
        + streamed(pattern.nnz, itemsize=itemsize)
        + gathered(pattern, width, itemsize)
        + streamed(pattern.rows * width, 2 * pattern.nnz * width, itemsize)
    )


def aggregation_work(
    pattern: Pattern, width: int, *, weighted: bool, backward: bool, itemsize: int = VALUE_BYTES
) -> Work:
    """Forward SpMM and, with ``backward``, its gradients to x and (weighted) to the weights. itemsize: bytes of a
    value.
    """
    work = spmm_work(pattern, width, weighted=weighted, itemsize=itemsize)
    if backward:
        work += spmm_work(pattern.transpose, width, weighted=weighted, itemsize=itemsize)
        if weighted:
            work += sddmm_work(pattern, width, itemsize)
    return work


def dense_work(
    rows: int, fan_in: int, fan_out: int, *, backward: bool, input_gradient: bool = True, itemsize: int = VALUE_BYTES
) -> Work:
    """A linear layer on (rows, fan_in): y = x W, with ``backward`` also dW, and dx where the input needs a gradient."""

    def product(*shapes: tuple[int, int]) -> Work:
        return streamed(sum(a * b for a, b in shapes), 2 * rows * fan_in * fan_out, itemsize)

    x, weight, y = (rows, fan_in), (fan_in, fan_out), (rows, fan_out)
    work = product(x, weight, y)
    if backward:
        work += product(x, y, weight)
        if input_gradient:
            work += product(y, weight, x)
    return work
