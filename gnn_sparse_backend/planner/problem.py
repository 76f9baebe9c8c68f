"""What a plan is chosen for: an aggregation or an edge map, by what of it costs time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..compiler.cache.bounded import kept
from ..compiler.language.types import BYTES
from ..frozen import dataclass

# Consecutive non-zeros of a window; windows at two places of a structure are looked at.
WINDOW = 512
# Rows that a window must hold to say how much neighbours share.
ROWS_IN_WINDOW = 4
# Fewer repeated columns in a window than this say nothing.
_FEWEST_EQUAL = 4
# Non-zeros whose rows are looked at.
SAMPLES = 64


@dataclass(frozen=True)
class Problem:
    """An aggregation over the rows of a sparse matrix, or an edge map.

    kind: the reduction (or ``map``), and where each operand stands, as ``"sum:column,edge"``.
    rows, cols, nnz: of the matrix. features: of a row of the result, of an edge map before any are summed.
    dtype: of the values, such as "float32"; types of the same size have kernels of their own. threads: that the kernel
    may use.
    reach: columns that the non-zeros of a neighbourhood spread over (``reach_of``), at most ``cols``; 0 if not looked
    at.
    longest: non-zeros of the longest row, where it is long enough to matter (``longest_row``), else 0.
    typical: length such that half of all non-zeros stand in rows as long or longer (``typical_row``); 0 if not looked
        at.
    """

    kind: str
    rows: int
    cols: int
    nnz: int
    features: int
    dtype: str
    threads: int
    reach: int = 0
    longest: int = 0
    typical: int = 0

    @property
    def reduce(self) -> str:
        """The reduction, or ``map``."""
        return operands_of_kind(self.kind)[0]

    @property
    def gathered(self) -> int:
        """Operands at the columns, whose rows are gathered."""
        return operands_of_kind(self.kind)[1]

    @property
    def at_edges(self) -> int:
        """Operands at the edges."""
        return operands_of_kind(self.kind)[2]

    @property
    def waits(self) -> bool:
        """Whether what is gathered is summed over features before an edge's message is known: a map of products is, and
        a message with sums.
        """
        return self.reduce == "map" or "inner" in self.kind

    @property
    def mean(self) -> float:
        """Non-zeros of the mean row."""
        return self.nnz / max(self.rows, 1)

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return BYTES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the dense operand."""
        return self.features * self.itemsize

    @property
    def nearby_bytes(self) -> int:
        """Bytes of the rows of the dense operand that a neighbourhood gathers."""
        return (self.reach or self.cols) * self.row_bytes

    @property
    def table_bytes(self) -> int:
        """Bytes of the dense operand."""
        return self.cols * self.row_bytes

    def rounded(self) -> Problem:
        """Return the problem with sizes rounded to four significant bits, and to two the longest row and the estimates,
        reach and typical row: problems about as large share what was worked out for one.
        """
        return Problem(*self.rounded_sizes())

    def rounded_sizes(self) -> tuple[Any, ...]:
        """The fields of ``rounded()``, which are compared faster: a fresh mini-batch waits for it."""
        reach, longest, typical = self.reach, self.longest, self.typical
        return (
            self.kind,
            _rounded(self.rows),
            _rounded(self.cols),
            _rounded(self.nnz),
            self.features,
            self.dtype,
            self.threads,
            reach and _rounded(reach, 2),
            longest and _rounded(longest, 2),
            typical and _rounded(typical, 2),
        )

    def on(self, threads: int) -> Problem:
        return replace(self, threads=threads)


@dataclass(frozen=True)
class CudaProblem(Problem):
    """A `Problem` on a GPU, whose ``threads`` are 1 whatever the process has, and whose ``reach`` is not looked at.

    arch: its compute architecture, "sm_90". cache: bytes of its second-level cache.
    slots: elements that the blocks of the structure store on Tensor Cores; 0 where it does not fill them, or nobody
    looked.
    in_bsr, in_sr_bcrs: elements that either format of blocks stores, or would store; 0 where that was not counted.
        ``slots`` is the first where BSR is taken, else the second.
    """

    arch: str = ""
    cache: int = 1
    slots: int = 0
    in_bsr: int = 0
    in_sr_bcrs: int = 0


@kept
def operands_of_kind(kind: str) -> tuple[str, int, int]:
    """(reduction, operands at the column, operands at the edge) of a problem's kind."""
    reduce, _, places = kind.partition(":")
    where = places.split(",")
    return reduce, where.count("column"), where.count("edge")


def reach_of(indices: np.ndarray, rows: int, cols: int) -> int:
    """How many columns consecutive non-zeros spread over, in effect.

    It is the number of columns from which two windows of ``WINDOW`` non-zeros, drawn uniformly, would have as many
    distinct ones as they have (about 20 microseconds; the birthday problem). Communities and hubs make it smaller than
    ``cols``, and both make gathers hit caches. All columns where a window holds fewer than ``ROWS_IN_WINDOW`` rows:
    what it meets twice are hubs then, and nothing is known of what neighbouring rows share.

    indices: (nnz,) columns in the order in which a kernel visits them. rows: that have them.
    """
    nnz = len(indices)
    if nnz < 2 * WINDOW or nnz * ROWS_IN_WINDOW > rows * WINDOW:
        return cols
    starts = nnz // 4, nnz - nnz // 4 - WINDOW
    distinct = sum(len(set(indices[at : at + WINDOW].tolist())) for at in starts) / 2
    if WINDOW - distinct < _FEWEST_EQUAL:
        return cols
    low, high = 1.0, WINDOW * WINDOW / _FEWEST_EQUAL
    for _ in range(12):
        middle = math.sqrt(low * high)
        if -math.expm1(-WINDOW / middle) * middle < distinct:
            low = middle
        else:
            high = middle
    return min(cols, math.ceil(high))


def longest_row(indptr: np.ndarray, parts: int, heaviest: int | None = None) -> int:
    """Non-zeros of the longest row if it holds more than one in ``parts`` of all, else 0.

    heaviest: most non-zeros of any of some ``2 * parts`` stretches of rows, which together are all of them. Where none
        holds as much as such a row, as in a sampled mini-batch, that is all that is looked at. Else, or where it is
        None, the row covers one of ``parts`` evenly spaced non-zeros, which are looked up instead of reading every row.
    """
    nnz = int(indptr[-1])
    if not nnz or (heaviest is not None and heaviest * parts <= nnz):
        return 0
    ends = indptr.searchsorted(np.arange(0, nnz, max(1, nnz // parts), dtype=indptr.dtype), side="right")
    longest = int((indptr[ends] - indptr[ends - 1]).max())
    return longest if longest * parts > nnz else 0


def typical_row(indptr: np.ndarray) -> int:
    """Non-zeros of the row of a typical non-zero: half of all stand in rows as long, or longer. By ``SAMPLES`` of them,
    evenly spaced.

    The mean says what a typical row has; where few rows are long, nearly all of the time may be spent in them.
    """
    nnz = int(indptr[-1])
    if not nnz:
        return 0
    ends = indptr.searchsorted((np.arange(SAMPLES) * (nnz / SAMPLES)).astype(indptr.dtype), side="right")
    return int(np.sort(indptr[ends] - indptr[ends - 1])[SAMPLES // 2])


def _rounded(size: int, bits: int = 4) -> int:
    dropped = max(0, size.bit_length() - bits)
    return size >> dropped << dropped
