"""What is wrong with a structure or an operand, in words, before any kernel runs.

Compiled kernels do not check indices, so every structure that a user gives passes ``check_csr`` once.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..formats.counts import read
from ..formats.structure import check_offsets
from ..runtime import devices
from ..runtime.layout import compact
from ..runtime.memory import check_written_out
from ..runtime.type_names import DTYPES

FLOATING = frozenset(DTYPES.values())
COMPLEX = frozenset((torch.complex64, torch.complex128))
"""Types whose sums are those of two floating numbers each."""
INTEGERS = frozenset((torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64))
WHOLE = INTEGERS | {torch.bool}
_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))
_PART = 1 << 22
"""Entries that are compared with their neighbours at a time: the truth values of all would take memory."""
IndexArray: TypeAlias = Tensor | NDArray[Any]
"""Integers of any type."""


def check_shape(shape: object) -> tuple[int, int]:
    """``shape`` as two non-negative ints."""
    try:
        rows, cols = shape
    except (TypeError, ValueError):
        raise TypeError(f"shape must be a pair (destinations, sources), got {shape!r}") from None
    return check_count("number of destinations", rows), check_count("number of sources", cols)


def as_int(value: object) -> int | None:
    """``value`` as an int where it is one, or a tensor or array of one integer; else None."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, Tensor) and value.dtype is torch.bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def check_count(name: str, value: object) -> int:
    """``value``, a number of things of which indices tell which, as an int: what is kept by it would not find a tensor
    of one integer again.
    """
    count = as_int(value)
    if count is None:
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}")
    if count < 0:
        raise ValueError(f"{name} must not be negative, got {count}")
    if count >= 2**63:
        raise ValueError(f"{name} must be less than 2**63, got {count}")
    return count


def as_index_vector(name: str, value: object) -> Tensor:
    """``value``, a torch tensor or NumPy array of any integer type, as a 1-D strided tensor."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iu":
            raise TypeError(f"{name} must hold integers, got a NumPy array of {value.dtype}")
        value = _as_tensor(value)
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch tensor or NumPy array of integers, got {type(value).__name__}; "
            "wrap it in torch.as_tensor(...)"
        )
    if value.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got layout {value.layout}")
    check_integers(name, value)
    if value.dim() != 1:
        raise ValueError(f"{name} must be 1-D, got shape {tuple(value.shape)}")
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device and has no values; give a tensor with data")
    check_written_out(name, value)
    return plain_tensor(value)


def _as_tensor(array: NDArray[Any]) -> Tensor:
    """A NumPy array of integers as a tensor: of its own memory, which may be a file's, where its type is an index
    type.
    """
    if array.dtype not in _INDEX_TYPES or not all(stride >= 0 for stride in array.strides):
        array = array.astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of memory that is not to be written to, and nobody writes
        return torch.from_numpy(array)


def is_fixed(array: object) -> bool:
    """Whether it is a file that is mapped into memory and cannot be written to by this name: it need not be copied."""
    return isinstance(array, np.memmap) and array.mode == "r" and array.flags.c_contiguous


def check_integers(name: str, value: Tensor) -> None:
    if value.dtype not in INTEGERS:
        raise TypeError(f"{name} must hold integers, got {value.dtype}")


def plain_tensor(x: Tensor) -> Tensor:
    """``x`` without its subclass; PyG's index classes hold their data in another tensor, behind ``as_tensor``."""
    if type(x) is Tensor:
        return x
    return x.as_tensor() if hasattr(x, "as_tensor") else x.as_subclass(Tensor)


def as_kernels_read(x: Tensor) -> Tensor:
    """``x`` itself if it is an ordinary tensor without gaps at an address for vectors, else its values in one."""
    return compact(plain_tensor(x))


def check_range(name: str, values: Tensor, bound: int, of_what: str) -> None:
    """Every entry of ``values`` is in ``[0, bound)``."""
    check_ranges((name, values, bound, of_what))


def check_ranges(*arrays: tuple[str, Tensor, int | None, str]) -> list[int]:
    """`check_range` of several arrays on one device. A bound of None is the largest entry plus one. Returns the
    bounds.
    """
    bounds = []
    for (name, values, bound, of_what), (low, high) in zip(arrays, _limits(*(array[1] for array in arrays))):
        bounds.append(max(high + 1, 0) if bound is None else bound)
        _check_limits(name, values, bounds[-1], of_what, low, high)
    return bounds


def check_edges(row: Tensor, col: Tensor, shape: tuple[int, int]) -> bool:
    """Every edge ``(row[e], col[e])`` is inside ``shape``. Returns whether the rows do not decrease. A GPU is waited
    for once.
    """
    if not row.numel():
        return True
    rising = _rises(row)
    # the ends of a sorted array are its limits; to ask first pays where asking is not waiting
    limits = (row[0], row[-1]) if devices.on_cpu(row.device) and bool(rising) else torch.aminmax(row)
    rising, *limits = read(rising, *limits, *torch.aminmax(col))
    _check_limits("row", row, shape[0], "destinations", *limits[:2])
    _check_limits("col", col, shape[1], "sources", *limits[2:])
    return bool(rising)


def ascends(values: Tensor) -> bool:
    """Whether no entry is below the one before it."""
    return bool(_rises(values))


def _rises(values: Tensor) -> Tensor:
    """`ascends`, as a tensor, so that a GPU is not waited for."""
    if not devices.on_cpu(values.device):
        return (values[1:] >= values[:-1]).all()
    parts = (values[at : at + _PART + 1] for at in range(0, values.numel() - 1, _PART))
    return torch.tensor(all(bool((part[1:] >= part[:-1]).all()) for part in parts))


def _limits(*arrays: Tensor) -> list[tuple[int, int]]:
    """The smallest and the largest entry of each of several arrays on one device, (0, -1) of an empty one."""
    found = [torch.aminmax(values) for values in arrays if values.numel()]
    values = iter(read(*(limit for both in found for limit in both)) if found else ())
    return [(next(values), next(values)) if array.numel() else (0, -1) for array in arrays]


def _check_limits(name: str, values: Tensor, bound: int, of_what: str, low: int, high: int) -> None:
    """Entries from ``low`` to ``high`` are in ``[0, bound)``."""
    if low >= 0 and high < bound:
        return
    position = int(((values < 0) | (values >= bound)).nonzero()[0])
    raise ValueError(
        f"{name}[{position}] = {int(values[position])} is out of range: there are {bound} {of_what}, "
        f"so entries must be in [0, {bound})"
    )


def check_csr(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, shape: tuple[int, int]) -> None:
    """The arrays form a CSR structure of ``shape`` that a kernel can walk safely; errors quote the first bad entry."""
    num_edges = indices.numel()
    if indptr.numel() != shape[0] + 1:
        raise ValueError(f"indptr must have destinations + 1 = {shape[0] + 1} entries, got {indptr.numel()}")
    check_offsets("indptr", indptr, num_edges, "edges")
    ranges = [("indices", indices, shape[1], "sources")]
    if edge_ids is not None:
        check_one_per_edge(edge_ids, num_edges)
        ranges.append(("edge_ids", edge_ids, num_edges, "edges"))
    check_ranges(*ranges)


def check_one_per_edge(edge_ids: Tensor, num_edges: int) -> None:
    """``edge_ids`` has as many entries as there are edges."""
    if edge_ids.numel() != num_edges:
        raise ValueError(f"edge_ids must have one entry per edge ({num_edges}), got {edge_ids.numel()}")


def check_permutation(edge_ids: Tensor) -> None:
    """``edge_ids`` names every edge exactly once."""
    counts = torch.bincount(edge_ids.long(), minlength=edge_ids.numel())
    if bool((counts != 1).any()):
        edge = int((counts != 1).nonzero()[0])
        raise ValueError(f"edge_ids must name every edge once, but edge {edge} appears {int(counts[edge])} times")


def check_same_device(**tensors: Tensor | None) -> None:
    """All given tensors are on one device."""
    devices = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    if len(set(devices.values())) > 1:
        raise ValueError(
            "all index tensors must be on one device, got "
            + ", ".join(f"{name} on {device}" for name, device in devices.items())
        )
