"""Files of the kind npz: SciPy's for matrices that SciPy has, and levels for all others.

SciPy's have the arrays that its `save_npz` writes, and two that SciPy looks past: `index_dtype`, and for blocks and
diagonals `mask`, which tells what is stored from what fills up. Files of levels have

    format       "levels"
    version      1
    shape        of the tensor
    levels       the kind of each level, outermost first
    order        the mode of each level
    block        the sides of blocks, of a format that has them; diagonals: true, of a format of diagonals
    values       one for each position; of bfloat16 their bits as uint16, and dtype is "bfloat16"
    offsets_n    of a compressed level n, and indices_n of all but dense levels
    mask         of blocks and diagonals
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Mapping
from typing import IO, Any, TypeAlias

import numpy as np

from ..array import Array, array
from ..errors import FormatError
from ..storage.format import Format
from ..storage.making import make
from ..storage.stored import Stored
from ..storage.values import checked, is_tensor
from .levels import structure_of

Path: TypeAlias = str | os.PathLike[str] | IO[bytes]
Arrays: TypeAlias = Mapping[str, np.ndarray]


def save_npz(path: Path, A: Any) -> None:
    """Write an array to a file that `load_npz` reads, and of matrices in csr, csc, coo, bsr and dia SciPy's
    `load_npz` too.

    Args:
        path: of the file, ".npz" is appended where it is missing; or an open binary file.
        A: an `Array`, or whatever `array` takes.

    SciPy reads the types that it has, all but float16 and bfloat16, and blocks that fill the shape. Gradients are not
    kept, nor whether values are NumPy's or PyTorch's. Raises TypeError for what is neither a path nor an array.
    """
    check_path(path)
    x = A if isinstance(A, Array) else array(A)
    np.savez_compressed(path, allow_pickle=False, **(_of_scipy(x) or _of_levels(x)))


def load_npz(path: Path) -> Array:
    """Read the array of a file that `save_npz` or SciPy's `save_npz` wrote, with its format, its types and all of its
    elements. Values are NumPy's, those of bfloat16 PyTorch's.

    Raises ValueError for a file that is none, and whatever opening it does.
    """
    check_path(path)
    stored = _read(path)
    return Array(stored.structure, stored.values)


def _read(path: Path) -> Stored:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        raise ValueError(f"{path!r} is no npz file of arrays, such as save_npz writes here and in SciPy") from None
    if "format" not in arrays:
        raise ValueError(f"{path!r} has the arrays {', '.join(arrays)}, and no format, as files of a tensor have")
    try:
        return _from_levels(arrays) if _text(arrays["format"]) == "levels" else _from_scipy(arrays)
    except KeyError as error:
        raise ValueError(f"{path!r} lacks the array {error}, which its format has") from None
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{path!r} is no file of a tensor: {error}") from None


def check_path(path: object) -> None:
    """Raise TypeError for what is neither the name of a file nor an open one."""
    if not isinstance(path, (str, os.PathLike)) and not hasattr(path, "read"):
        raise TypeError(f"{path!r:.60} is not the path of a file, nor an open one")


def _of_scipy(x: Stored) -> dict[str, Any] | None:
    """The arrays of SciPy's file; None of what SciPy has not."""
    name = str(x.format).partition("(")[0]
    if name not in ("csr", "csc", "coo", "bsr", "dia") or x.ndim != 2 or x.dtype in ("float16", "bfloat16"):
        return None
    matrix = x.to_scipy()
    if matrix.format != name or (x.format.block is not None and matrix.blocksize != x.format.block):
        return None
    arrays = {"format": name.encode(), "shape": x.shape, "data": matrix.data, "_is_array": True}
    arrays["index_dtype"] = x.index_dtype
    for own in {"coo": ("row", "col"), "dia": ("offsets",)}.get(name, ("indices", "indptr")):
        arrays[own] = getattr(matrix, own)
    if x.format.masked:
        arrays["mask"] = x.with_values(np.ones(x.structure.positions, np.int8)).to_scipy().data != 0
    return arrays


def _from_scipy(arrays: Arrays) -> Stored:
    """The tensor of SciPy's arrays."""
    from scipy import sparse

    name, shape, data = _text(arrays["format"]), tuple(map(int, arrays["shape"])), arrays["data"]
    index_dtype = _text(arrays["index_dtype"]) if "index_dtype" in arrays else None
    if name in ("csr", "csc", "bsr"):
        made = getattr(sparse, f"{name}_array")((data, arrays["indices"], arrays["indptr"]), shape=shape)
    elif name == "coo":
        at = arrays["coords"] if "coords" in arrays else (arrays["row"], arrays["col"])
        return make((at, data), "coo", shape, index_dtype=index_dtype)
    elif name == "dia":
        made = sparse.dia_array((data, arrays["offsets"]), shape=shape)
    else:
        raise ValueError(f"the format {name!r} is not one of csr, csc, coo, bsr, dia and levels")
    if name in ("csr", "csc"):
        return make(made, name, index_dtype=index_dtype)
    stored = arrays["mask"] if "mask" in arrays else data != 0 if name == "dia" else np.ones(data.shape, bool)
    numbers = made.copy()
    numbers.data = np.where(stored, np.arange(1, data.size + 1).reshape(data.shape), 0)
    entries = numbers.tocoo()
    entries.eliminate_zeros()
    format = "dia" if name == "dia" else f"bsr({made.blocksize[0]}, {made.blocksize[1]})"
    return make((entries.coords, data.reshape(-1)[entries.data - 1]), format, shape, index_dtype=index_dtype)


def _of_levels(x: Stored) -> dict[str, Any]:
    structure, format = x.structure, x.format
    values = x.values.detach().numpy() if is_tensor(x.values) and x.dtype != "bfloat16" else x.values
    if x.dtype == "bfloat16":
        values = values.detach().view(sys.modules["torch"].int16).numpy().view(np.uint16)
    arrays = {"format": b"levels", "version": 1, "shape": np.array(x.shape, np.int64), "dtype": x.dtype}
    arrays.update(levels=np.array(format.levels, "U"), order=np.array(format.order, np.int64), values=values)
    for name in ("block", "diagonals"):
        if getattr(format, name):
            arrays[name] = getattr(format, name)
    for n, level in enumerate(structure.levels):
        for name in ("offsets", "indices"):
            if getattr(level, name) is not None:
                arrays[f"{name}_{n}"] = getattr(level, name)
    if structure.mask is not None:
        arrays["mask"] = structure.mask
    return arrays


def _from_levels(arrays: Arrays) -> Stored:
    """The tensor of a file of levels. Raises FormatError for arrays that are not those of one."""
    if int(arrays["version"]) != 1:
        raise FormatError(f"it has the version {int(arrays['version'])} of this layout, and 1 alone is read")
    block, diagonals = arrays.get("block"), arrays.get("diagonals")
    format = Format(
        tuple(map(str, arrays["levels"])),
        tuple(map(int, arrays["order"])),
        None if block is None else (int(block[0]), int(block[1])),
        diagonals is not None and bool(diagonals),
    )
    values = arrays["values"]
    if _text(arrays["dtype"]) == "bfloat16":
        import torch

        values = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    levels = [(arrays.get(f"offsets_{n}"), arrays.get(f"indices_{n}")) for n in range(len(format.levels))]
    shape = tuple(map(int, arrays["shape"]))
    return Stored(structure_of(format, shape, levels, arrays.get("mask")), checked(values, "values"))


def _text(array: np.ndarray) -> str:
    found = array.item()
    return found.decode("ascii") if isinstance(found, bytes) else str(found)
