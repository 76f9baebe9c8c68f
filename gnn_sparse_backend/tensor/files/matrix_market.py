"""Matrices in files of the kind MatrixMarket, which SciPy reads and writes."""

from __future__ import annotations

from typing import Any

from ..array import Array, array
from ..errors import FormatError
from .npz import Path, check_path


def save_mtx(path: Path, A: Any) -> None:
    """Write a matrix to a file of MatrixMarket: the coordinates of a sparse one, and all elements of a dense one.

    Args:
        path: of the file, ".mtx" is appended where it is missing; or an open binary file.
        A: an `Array`, or whatever `array` takes, with two modes.

    Such files have no types: numbers are read as float64 or int64, from which `.to(dtype=...)` makes the same again.
    Raises FormatError for other numbers of modes.
    """
    from scipy import io

    check_path(path)
    x = A if isinstance(A, Array) else array(A)
    if x.ndim != 2:
        raise FormatError(f"files of MatrixMarket hold matrices, and this array has the shape {x.shape}; use save_npz")
    wide = x.to(dtype="float32") if x.dtype in ("bfloat16", "float16") else x
    io.mmwrite(path, wide.to_dense() if x.format.is_dense else wide.to_scipy("coo"), symmetry="general")


def load_mtx(path: Path) -> Array:
    """Read the matrix of a file of MatrixMarket: in coo where it has coordinates, else dense; duplicates are summed.

    Args:
        path: of the file, which may be compressed by gzip or bzip2; or an open one.

    Raises ValueError for a file that is none, TypeError for complex numbers, and whatever opening it does.
    """
    from scipy import io

    check_path(path)
    try:
        found = io.mmread(path)
    except (ValueError, OverflowError, IndexError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"{path!r} is no file of MatrixMarket: {error}") from None
    try:
        return array(found)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the matrix of {path!r}: {error}") from None
