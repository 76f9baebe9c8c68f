"""What arrays are made of: arrays of NumPy, SciPy and PyTorch, and coordinates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler.language.types import ACCUMULATOR
from ...frozen import dataclass
from ..errors import FormatError
from .format import Format, bsr, coo, csc, csr
from .values import Values, checked, dtype_name, integers, is_tensor, to_dtype


@dataclass(frozen=True)
class Read:
    """Elements: coordinates of shape (modes, elements) and values, or all of them where coordinates are None.

    Attributes:
        format: the one that comes nearest to what they were read from.
    """

    values: Values
    shape: tuple[int, ...]
    coordinates: np.ndarray | None = None
    format: Format | None = None


def read(x: Any, shape: Sequence[int] | None, duplicates: str = "sum") -> Read:
    """The elements of whatever `array` takes. Raises TypeError and ValueError with what is wrong."""
    if isinstance(x, tuple):
        return _within(_of_coordinates(x, shape))
    if is_tensor(x):
        found = _of_torch(x, duplicates)
    elif _is_scipy(x):
        found = _of_scipy(x)
    else:
        values = checked(x, "x")
        found = Read(values, tuple(int(n) for n in values.shape))
    same_shape(found.shape, shape)
    return _within(found)


def _within(found: Read) -> Read:
    """Elements, whose coordinates neither SciPy nor PyTorch have always looked at. Raises ValueError."""
    if found.coordinates is not None:
        _check_within(found.coordinates, found.shape)
    return found


def _check_within(at: Any, shape: tuple[int, ...]) -> None:
    for mode, (column, size) in enumerate(zip(at, shape)):
        wrong = column[(column < 0) | (column >= size)]
        if len(wrong):
            raise ValueError(f"coordinate {int(wrong[0])} of mode {mode} is out of the shape {shape}")


def same_shape(own: tuple[int, ...], shape: Sequence[int] | None) -> None:
    """Refuse a shape that is given to what has another one."""
    if shape is not None and integers(shape, "shape") != own:
        raise ValueError(f"shape {tuple(shape)} is not that of x, {own}; only coordinates have none of their own")


def _of_coordinates(x: tuple[Any, ...], shape: Sequence[int] | None) -> Read:
    if len(x) != 2:
        raise TypeError(f"a tuple is (coordinates, values), and this one has {len(x)} parts")
    columns = [_integers(column) for column in x[0]]
    if not columns or len({len(column) for column in columns}) > 1:
        raise ValueError(
            f"coordinates are one array for each mode, equally long, not of {[len(c) for c in columns]} entries"
        )
    at = np.stack(columns)
    values = checked(x[1], "values")
    if tuple(values.shape) != at.shape[1:]:
        raise ValueError(f"there are {at.shape[1]} coordinates, and values of the shape {tuple(values.shape)}")
    found = tuple(int(n) for n in at.max(1, initial=-1) + 1) if shape is None else integers(shape, "shape")
    if len(found) != len(at):
        raise ValueError(f"shape {found} has {len(found)} modes, and the coordinates {len(at)}")
    if min(found) < 0:
        raise ValueError(f"shape {found} has a mode of less than no coordinates")
    return Read(values, found, at, coo(len(at)))


def _integers(column: Any) -> np.ndarray:
    found = column.detach().cpu().numpy() if is_tensor(column) else np.asarray(column)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise TypeError(f"coordinates are integers in one dimension, not {found.dtype} of the shape {found.shape}")
    if found.size and found.max() >= np.iinfo(np.int64).max:
        raise ValueError(f"coordinate {found.max()} is more than can be counted; the last one is 2**63 - 2")
    return found.astype(np.int64)


def _is_scipy(x: object) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(x)


def rows_of_scipy(x: object) -> tuple[Format, np.ndarray, np.ndarray] | None:
    """(format, offsets, indices) of SciPy's CSR or CSC whose arrays are those of the format as they are: sorted, and
    without duplicates. Raises ValueError for indices that are out of the shape.
    """
    if not _is_scipy(x) or x.format not in ("csr", "csc") or len(x.shape) != 2:  # type: ignore[attr-defined]
        return None
    offsets, indices, lines = x.indptr, x.indices, x.shape[x.format == "csc"]  # type: ignore[attr-defined]
    if (
        len(offsets) != lines + 1
        or offsets[0] != 0
        or offsets[-1] != len(indices)
        or (offsets[1:] < offsets[:-1]).any()
    ):
        return None
    other = x.shape[x.format == "csr"]  # type: ignore[attr-defined]
    if len(indices) and (indices.min() < 0 or indices.max() >= other):
        return None  # which is told by who looks at each
    if len(x.data) != len(indices) or not x.has_canonical_format:  # type: ignore[attr-defined]
        return None
    return {"csr": csr, "csc": csc}[x.format], offsets, indices  # type: ignore[attr-defined]


def _of_scipy(x: Any) -> Read:
    entries = x.tocoo()
    columns = getattr(entries, "coords", None) or (entries.row, entries.col)
    at = np.stack([np.asarray(column, np.int64) for column in columns])
    named = {"csr": csr, "csc": csc}.get(x.format) if len(columns) == 2 else None
    if x.format == "bsr":
        named = bsr((int(x.blocksize[0]), int(x.blocksize[1])))
    return Read(entries.data, tuple(int(n) for n in x.shape), at, named or coo(len(at)))


def _of_torch(x: Any, duplicates: str) -> Read:
    import torch

    shape = tuple(int(n) for n in x.shape)
    if x.layout is torch.strided:
        return Read(x, shape)
    compressed = torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc
    if x.layout not in (torch.sparse_coo, *compressed):
        raise FormatError(f"x has the layout {x.layout}, which is not read; give x.to_dense()")
    names = {torch.sparse_csr: csr, torch.sparse_csc: csc} if len(shape) == 2 else {}
    if x.layout is torch.sparse_coo:
        _check_within(x._indices(), shape)  # before PyTorch makes others of them
    else:
        _check_compressed(x)
    entries = checked(x if x.layout is torch.sparse_coo else x.to_sparse_coo(), "x")
    if entries.dense_dim():
        raise FormatError(f"x has {entries.dense_dim()} dense dimensions behind its sparse ones; give it without them")
    # whose values have the gradients of x, as those of entries have not
    found = to_dtype(to_dtype(entries, ACCUMULATOR[dtype_name(entries)]).coalesce(), dtype_name(entries))
    repeated = duplicates == "refuse" and found._nnz() < entries._nnz()
    at, values = (entries._indices(), entries._values()) if repeated else (found.indices(), found.values())
    return Read(values, shape, at.numpy().astype(np.int64), names.get(x.layout, coo(len(shape))))


def _check_compressed(x: Any) -> None:
    """Refuse offsets and coordinates of PyTorch's CSR, CSC and blocks that it would follow out of its memory."""
    import torch

    by_rows = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    offsets, inner = (x.crow_indices(), x.col_indices()) if by_rows else (x.ccol_indices(), x.row_indices())
    blocks = x.layout in (torch.sparse_bsr, torch.sparse_bsc)
    extent = x.shape[-1 if by_rows else -2] // (x.values().shape[-1 if by_rows else -2] if blocks else 1)
    wrong = inner[(inner < 0) | (inner >= extent)]
    if len(wrong):
        raise ValueError(f"coordinate {int(wrong[0])} of x, a tensor of {x.layout}, is not from 0 to {extent - 1}")
    if (offsets[..., 0] != 0).any() or (offsets[..., -1] != inner.shape[-1]).any() or (offsets.diff() < 0).any():
        raise ValueError(f"offsets {offsets!r:.60} of x do not ascend from 0 to its {inner.shape[-1]} coordinates")
