"""The operators in NumPy float64, how far a right answer may be from them, and hypothesis strategies."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

import gnn_sparse_backend as gsb

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def graph_of(structure) -> gsb.Graph:
    row, col, shape = structure
    return gsb.Graph.from_coo(torch.from_numpy(row), torch.from_numpy(col), shape)


def random(*shape, dtype=torch.float64, seed=0, grad=False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def exact(x: torch.Tensor) -> np.ndarray:
    return x.detach().double().numpy()


def spmm_oracle(structure, x, weight=None, mean=False):
    """(result, sum of the absolute terms) of spmm; x (n, F) or (n, H, D), weight None, (E,) or (E, H)."""
    row, col, shape = structure
    terms = exact(x)[col]
    if weight is not None:
        values = exact(weight)
        terms = terms * values.reshape(values.shape + (1,) * (terms.ndim - values.ndim))
    result, magnitude = np.zeros((2, shape[0], *terms.shape[1:]))
    np.add.at(result, row, terms)
    np.add.at(magnitude, row, np.abs(terms))
    if mean:
        degrees = np.maximum(np.bincount(row, minlength=shape[0]), 1).reshape(-1, *(1,) * (terms.ndim - 1))
        result, magnitude = result / degrees, magnitude / degrees
    return result, magnitude


def sddmm_oracle(structure, u, v):
    """(result, sum of the absolute terms) of sddmm."""
    row, col, _ = structure
    terms = exact(u)[row] * exact(v)[col]
    return terms.sum(-1), np.abs(terms).sum(-1)


def assert_right(actual: torch.Tensor, oracle, terms: int) -> None:
    """``actual`` is within the rounding of ``terms`` additions in the accumulation type, and of its own type once."""
    expected, magnitude = oracle
    assert tuple(actual.shape) == expected.shape
    accumulation = torch.finfo(torch.float64 if actual.dtype == torch.float64 else torch.float32)
    own = torch.finfo(actual.dtype)
    bound = (terms + 4) * accumulation.eps * magnitude + own.eps * np.abs(expected) + own.smallest_normal
    error = np.abs(exact(actual) - expected)
    assert (error <= bound).all(), f"largest error over bound: {np.nanmax(error / bound)}"


def longest_row(structure) -> int:
    row, _, _ = structure
    return int(np.bincount(row).max()) if row.size else 0


@st.composite
def structures(draw, max_rows=12, max_cols=12, max_edges=40):
    """(row, col, shape) with empty rows, duplicates, self loops, any order, and any of the sizes zero."""
    rows, cols = draw(st.integers(0, max_rows)), draw(st.integers(0, max_cols))
    count = draw(st.integers(0, max_edges)) if rows and cols else 0
    row = draw(st.lists(st.integers(0, max(rows - 1, 0)), min_size=count, max_size=count))
    col = draw(st.lists(st.integers(0, max(cols - 1, 0)), min_size=count, max_size=count))
    return np.array(row, dtype=np.int64), np.array(col, dtype=np.int64), (rows, cols)
