"""Random sparse structures and the arguments of every stage I program, for the tests of the stages."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from gnn_sparse_backend.compiler.language.axes import Size
from gnn_sparse_backend.compiler.language.layout import chains, elements
from gnn_sparse_backend.compiler.language.program import Program
from gnn_sparse_backend.compiler.language.types import FLOATS


def draw_counts(rng, parents: int, most: int) -> np.ndarray:
    """Elements under each parent: often none, sometimes many."""
    return rng.integers(0, most + 1, parents) * (rng.random(parents) < 0.7)


def complete(program: Program, rng, sizes: dict[str, int], *, most: int = 4, sort: bool = True) -> dict[str, object]:
    """Arguments for `program`: `sizes` where given, the numbers of elements and all arrays drawn to fit them.

    Axes are filled parents first. Coordinates are drawn without repetition, sorted where the axis says so; values are
    small integers over four, exact in every floating type. Parameters that the program only writes are NaN.
    """
    found: dict[str, object] = dict(sizes)

    def size(extent):
        return int(found[extent.name]) if isinstance(extent, Size) else extent

    for axis in program.axes:
        dtype = np.dtype(axis.index_dtype)
        if axis.parent is None:
            continue
        parents = elements(axis.parent, size)
        length = size(axis.length) if axis.is_sparse else 0
        if axis.is_variable:
            counts = draw_counts(rng, parents, min(most, length) if axis.is_sparse else most)
            indptr = np.zeros(parents + 1, dtype)
            np.cumsum(counts, out=indptr[1:])
            found[axis.indptr] = indptr
            found[axis.nnz.name] = int(indptr[-1])
            rows = [rng.permutation(length)[:c] for c in counts] if axis.is_sparse else []
        else:
            width = size(axis.nnz_cols)
            counts = np.minimum(draw_counts(rng, parents, width), length)
            rows = [np.concatenate([rng.permutation(length)[:c], np.full(width - c, -1)]) for c in counts]
        if axis.is_sparse:
            rows = [np.sort(r) if axis.sorted else r for r in rows]
            flat = np.concatenate(rows) if rows else np.zeros(0)
            found[axis.indices] = flat.astype(dtype)
    for buffer in program.parameters:
        if buffer.name not in found:
            shape = tuple(elements(c[-1], size) for c in chains(buffer.axes)) or (1,)
            found[buffer.name] = values(rng, shape, buffer.dtype)
    return found


def values(rng, shape, dtype: str) -> np.ndarray:
    if dtype in FLOATS:
        return (rng.integers(-8, 9, shape) / 4).astype("float32" if dtype == "bfloat16" else dtype)
    return rng.integers(0, 2, shape).astype(dtype)


seeds = st.integers(0, 2**32 - 1)
small = st.integers(1, 7)
