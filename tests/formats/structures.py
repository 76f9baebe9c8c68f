"""CSR structures for the tests of the formats, and the plain Python readings of each format they are held against."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from hypothesis import settings
from hypothesis import strategies as st

from gnn_sparse_backend.formats import (
    BsrFormat,
    CooFormat,
    CscFormat,
    CsrFormat,
    DiaFormat,
    EllFormat,
    HybFormat,
    SrBcrsFormat,
)

# Each test runs on a dozen formats; torch's first calls take longer than any deadline.
few = settings(max_examples=20, deadline=None)
many = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Structure:
    """A CSR structure as the lists of column coordinates of its rows."""

    rows: tuple
    n_cols: int
    dtype: torch.dtype

    @property
    def shape(self):
        return len(self.rows), self.n_cols

    @property
    def nnz(self):
        return sum(map(len, self.rows))

    @property
    def csr(self):
        indptr = torch.tensor([0, *np.cumsum([len(row) for row in self.rows])], dtype=self.dtype)
        return indptr, torch.tensor([col for row in self.rows for col in row], dtype=self.dtype), self.shape

    def triples(self):
        """Sorted (row, col, position) of all edges."""
        edges = [(i, col) for i, row in enumerate(self.rows) for col in row]
        return sorted((i, col, position) for position, (i, col) in enumerate(edges))

    def dense(self, values):
        """float64 matrix of the summed values, by scipy."""
        rows, cols = np.array([edge[:2] for edge in sorted(self.triples(), key=lambda t: t[2])]).reshape(-1, 2).T
        return scipy.sparse.coo_matrix((values.numpy(), (rows.astype(int), cols.astype(int))), self.shape).toarray()


@st.composite
def structures(draw, max_rows=7, max_cols=9, max_degree=11, unique=False):
    """Rectangular structures with empty rows, no edges, one column, and repeated or unsorted coordinates."""
    n_cols = draw(st.integers(0, max_cols))
    degree = 0 if n_cols == 0 else min(n_cols, max_degree) if unique else max_degree
    row = st.lists(st.integers(0, max(n_cols - 1, 0)), max_size=degree, unique=unique)
    rows = draw(st.lists(row, max_size=max_rows))
    return Structure(tuple(map(tuple, rows)), n_cols, draw(st.sampled_from([torch.int32, torch.int64])))


BUILDERS = {
    "csr": CsrFormat.from_csr,
    "csc": CscFormat.from_csr,
    "coo": CooFormat.from_csr,
    "ell": EllFormat.from_csr,
    "ell-wide": lambda *csr: EllFormat.from_csr(*csr, width=12),
    "bsr-2": lambda *csr: BsrFormat.from_csr(*csr, 2),
    "bsr-3x4": lambda *csr: BsrFormat.from_csr(*csr, (3, 4)),
    "sr-bcrs-2x3": lambda *csr: SrBcrsFormat.from_csr(*csr, (2, 3)),
    "sr-bcrs-4x1": lambda *csr: SrBcrsFormat.from_csr(*csr, (4, 1)),
    "dia": DiaFormat.from_csr,
    "hyb-default": HybFormat.from_csr,
    "hyb-1-2": lambda *csr: HybFormat.from_csr(*csr, c=1, k=2),
    "hyb-3-1": lambda *csr: HybFormat.from_csr(*csr, c=3, k=1, keep_empty=True),
    "hyb-2-0": lambda *csr: HybFormat.from_csr(*csr, c=2, k=0),
}

MERGING = ("bsr-2", "bsr-3x4", "sr-bcrs-2x3", "sr-bcrs-4x1", "dia")


def index_arrays(fmt):
    """Every index array of a format."""
    if isinstance(fmt, HybFormat):
        return [array for b in fmt.buckets for array in (b.row_indices, b.indices, b.value_position)]
    names = ("indptr", "indices", "row", "col", "offsets", "slots", "value_position")
    return [getattr(fmt, name) for name in names if name in type(fmt).__dataclass_fields__]


def dense_by_definition(fmt, padded):
    """Read a format as its docstring says, slot by slot, into a float64 matrix."""
    n_rows, n_cols = fmt.shape
    out = np.zeros((n_rows, n_cols))
    for row, col, value in slots_by_definition(fmt, padded):
        out[row, col] += value
    return out


def slots_by_definition(fmt, padded):
    """Yield (row, col, value) of every slot that a kernel may read."""
    if isinstance(fmt, CsrFormat):
        for i in range(fmt.shape[0]):
            for p in range(fmt.indptr[i], fmt.indptr[i + 1]):
                yield i, int(fmt.indices[p]), float(padded[p])
    elif isinstance(fmt, CscFormat):
        for j in range(fmt.shape[1]):
            for p in range(fmt.indptr[j], fmt.indptr[j + 1]):
                yield int(fmt.indices[p]), j, float(padded[p])
    elif isinstance(fmt, CooFormat):
        yield from zip(fmt.row.tolist(), fmt.col.tolist(), padded.tolist())
    elif isinstance(fmt, EllFormat):
        yield from _ell_slots(range(fmt.shape[0]), fmt.indices, padded)
    elif isinstance(fmt, HybFormat):
        for bucket, piece in zip(fmt.buckets, padded, strict=True):
            yield from _ell_slots(bucket.row_indices.tolist(), bucket.indices, piece)
    elif isinstance(fmt, BsrFormat):
        for block_row in range(fmt.indptr.numel() - 1):
            for b in range(fmt.indptr[block_row], fmt.indptr[block_row + 1]):
                for i, j in zip(*np.nonzero(fmt.mask[b].numpy())):
                    yield (block_row * fmt.block[0] + i, int(fmt.indices[b]) * fmt.block[1] + j, float(padded[b, i, j]))
    elif isinstance(fmt, SrBcrsFormat):
        for tile in range(fmt.indptr.numel() - 1):
            for b in range(fmt.indptr[tile], fmt.indptr[tile + 1]):
                for i, j in zip(*np.nonzero(fmt.mask[b].numpy())):
                    yield tile * fmt.block[0] + i, int(fmt.indices[b, j]), float(padded[b, i, j])
    elif isinstance(fmt, DiaFormat):
        for d, i in zip(*np.nonzero(fmt.mask.numpy())):
            yield i, i + int(fmt.offsets[d]), float(padded[d, i])
    else:
        raise TypeError(type(fmt))


def _ell_slots(rows, indices, padded):
    for i, row in enumerate(rows):
        for j, col in enumerate(indices[i].tolist()):
            if col >= 0:
                yield row, col, float(padded[i, j])
