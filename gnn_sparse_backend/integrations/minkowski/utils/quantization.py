"""Points to voxels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....nn.voxels.maps import kept
from ....structures.coordinates import Coordinates
from ..generator import Sizes, convert_to_int_list


def sparse_quantize(
    coordinates: np.ndarray | Tensor,
    features: np.ndarray | Tensor | None = None,
    labels: np.ndarray | Tensor | None = None,
    ignore_label: int = -100,
    return_index: bool = False,
    return_inverse: bool = False,
    return_maps_only: bool = False,
    quantization_size: float | Sequence[float] | np.ndarray | Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Any:
    """The voxels that hold points, each with what its first point has.

    Args:
        coordinates: (N, D) points, or integers. Divided by the size in their own type, and rounded down.
        features, labels: (N, channels) and (N,) of the points, or None. The label of a voxel whose points do not agree
            is ``ignore_label``.
        return_index, return_inverse: whether the first point of each voxel, and the voxel of each point, are returned.
        return_maps_only: whether these alone are, without the voxels.
        quantization_size: of a voxel, one number or one for each axis; None: 1.
        device: where voxels are, unless there are labels.

    Returns:
        Voxels (M, D) int32 in the order of their first points, then, of those that are asked for, features, labels,
        index and inverse; one of them alone where there is no other. With labels they are arrays of NumPy, if
        coordinates are.
    """
    numpy = isinstance(coordinates, np.ndarray)
    if not isinstance(coordinates, (np.ndarray, Tensor)) or coordinates.ndim != 2:
        raise ValueError(f"sparse_quantize: coordinates must be a matrix (N, D), got {coordinates!r}")
    for name, given in (("features", features), ("labels", labels)):
        if given is not None and len(given) != len(coordinates):
            raise ValueError(f"sparse_quantize: {name} must have {len(coordinates)} rows, got {len(given)}")
    if return_inverse and not (return_index or return_maps_only):
        raise ValueError("sparse_quantize: return_inverse comes with return_index")
    voxels = _voxels(coordinates, quantization_size)
    if labels is None:
        voxels = voxels.to(device)
    first, inverse = _firsts(voxels)
    maps = (first, inverse) if return_inverse else (first,)
    if labels is None and return_maps_only:
        return maps if len(maps) > 1 else first
    found: list[Any] = [voxels[first]]
    if features is not None:
        found.append(features[first.cpu().numpy() if isinstance(features, np.ndarray) else first.to(features.device)])
    if labels is not None:
        found.append(_agreed(torch.as_tensor(labels), first, inverse, ignore_label))
    found += maps if return_index else ()
    if numpy and labels is not None:
        found = [each.numpy() if isinstance(each, Tensor) else each for each in found]
        found = [each.astype(np.int32) if each.dtype == np.int64 else each for each in found]
    return tuple(found) if len(found) > 1 else found[0]


def unique_coordinate_map(coordinates: Tensor, tensor_stride: Sizes = 1) -> tuple[Tensor, Tensor]:
    """(the first of each of (N, 1 + D) coordinates, which of these each is equal to)."""
    convert_to_int_list(tensor_stride, coordinates.shape[1] - 1)
    return _firsts(coordinates)


def quantize(coords: np.ndarray | Tensor) -> tuple[Any, Any]:
    """``unique_coordinate_map``, of arrays of NumPy too."""
    found = _firsts(torch.as_tensor(coords).int())
    return found if isinstance(coords, Tensor) else tuple(each.numpy() for each in found)  # type: ignore[return-value]


def quantize_label(coords: np.ndarray | Tensor, labels: np.ndarray | Tensor, ignore_label: int) -> tuple[Any, Any, Any]:
    """``unique_coordinate_map``, and the labels that equal coordinates agree on."""
    first, inverse = _firsts(torch.as_tensor(coords).int())
    found = first, inverse, _agreed(torch.as_tensor(labels), first, inverse, ignore_label)
    return found if isinstance(coords, Tensor) else tuple(each.numpy() for each in found)  # type: ignore[return-value]


def ravel_hash_vec(arr: np.ndarray) -> np.ndarray:
    """(N,) uint64 numbers of (N, D) integers, each that of its cell in the box around them."""
    cells = (arr - arr.min(0)).astype(np.uint64)
    keys = np.zeros(len(cells), np.uint64)
    for column, size in zip(cells.T, cells.max(0) + np.uint64(1)):
        keys = keys * size + column
    return keys


def fnv_hash_vec(arr: np.ndarray) -> np.ndarray:
    """(N,) uint64 FNV-1 hashes of (N, D) integers."""
    keys = np.full(len(arr), 14695981039346656037, np.uint64)
    for column in arr.astype(np.uint64).T:
        keys = (keys * np.uint64(1099511628211)) ^ column
    return keys


def _voxels(coordinates: np.ndarray | Tensor, size: Any) -> Tensor:
    """(N, D) int32."""
    if size is not None and not (np.ndim(size) == 0 and size == 1):
        if np.ndim(size) == 1:
            if len(size) != coordinates.shape[1]:
                raise ValueError(f"sparse_quantize: quantization_size must have an entry for each axis, got {size!r}")
            numbers = [float(each) for each in size]
            size = np.array(numbers) if isinstance(coordinates, np.ndarray) else torch.tensor(numbers)
            size = size.to(coordinates.device) if isinstance(size, Tensor) else size
        coordinates = coordinates / size
    voxels = torch.as_tensor(coordinates)
    return (voxels.floor() if voxels.is_floating_point() else voxels).int()


@kept
def _firsts(voxels: Tensor) -> tuple[Tensor, Tensor]:
    """The first column counts as no batch: it may be negative."""
    columns = torch.nn.functional.pad(voxels, (1, 0))
    _, first, inverse = Coordinates.merged(columns)
    return first, inverse


def _agreed(labels: Tensor, first: Tensor, inverse: Tensor, ignore_label: int) -> Tensor:
    """(M,) int64 the label of each voxel."""
    labels = labels.long()
    found = labels[first]
    found[inverse[labels != found[inverse]]] = ignore_label
    return found
