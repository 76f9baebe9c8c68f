"""``TensorField``: features at points, which are between the cells of a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...ops.grouped.segment_reduce import segment_reduce
from ...structures.segments import Segments
from .enums import GPUMemoryAllocatorType, MinkowskiAlgorithm, SparseTensorQuantizationMode
from .generator import Sizes, convert_to_int_list
from .interpolation import at_sites
from .key import CoordinateMapKey
from .manager import CoordinateManager
from .modes import manager_for
from .sparse_tensor import REDUCTIONS, SparseTensor
from .tensor import Tensor, check_features

if TYPE_CHECKING:
    from typing_extensions import Self


class TensorField(Tensor):
    """Features at points.

    Args:
        features: (N, channels).
        coordinates: (N, 1 + D) the batch first; integers become float32.
        tensor_stride, coordinate_manager, allocator_type, minkowski_algorithm, requires_grad, device: as of
            ``SparseTensor``.
        coordinate_field_map_key, coordinate_manager: instead of coordinates, points that are known.
        quantization_mode: what ``sparse()`` does with the points of one cell.

    Raises:
        TypeError, ValueError: an argument is not as above; it is quoted.
    """

    coordinate_field_map_key: CoordinateMapKey

    def __init__(
        self,
        features: torch.Tensor,
        coordinates: torch.Tensor | None = None,
        tensor_stride: Sizes = 1,
        coordinate_field_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
        quantization_mode: SparseTensorQuantizationMode = SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE,
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
        requires_grad: bool | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_features(features, "TensorField")
        self.quantization_mode = _checked(quantization_mode)
        if device is not None:
            features = features.to(device)
        if coordinates is not None:
            if coordinate_field_map_key is not None:
                raise ValueError("TensorField: give coordinates or a coordinate_field_map_key, not both")
            if len(coordinates) != len(features):
                raise ValueError(
                    f"TensorField: features and coordinates must have one number of rows, got {tuple(features.shape)} "
                    f"and {tuple(coordinates.shape)}"
                )
            if coordinate_manager is None:
                D = coordinates.shape[1] - 1
                coordinate_manager = manager_for(D, minkowski_algorithm=minkowski_algorithm)
            coordinate_field_map_key = coordinate_manager.insert_field(coordinates.to(features.device), tensor_stride)
        elif coordinate_field_map_key is None or coordinate_manager is None:
            raise ValueError("TensorField: give coordinates, or a coordinate_field_map_key with its coordinate_manager")
        if requires_grad is not None:
            features.requires_grad_(requires_grad)
        self._F, self._C = features, None
        self._manager, self.coordinate_field_map_key = coordinate_manager, coordinate_field_map_key
        self._inverse_mapping: dict[CoordinateMapKey, torch.Tensor] = {}

    @property
    def _key(self) -> CoordinateMapKey:
        return self.coordinate_field_map_key

    def _like(self, features: torch.Tensor) -> Self:
        made = object.__new__(type(self))
        vars(made).update(vars(self), _F=features)
        return made

    def _at(self, key: CoordinateMapKey) -> torch.Tensor:
        return self._manager.get_coordinate_field(key)

    def sparse(
        self,
        tensor_stride: Sizes = 1,
        coordinate_map_key: CoordinateMapKey | None = None,
        quantization_mode: SparseTensorQuantizationMode | None = None,
    ) -> SparseTensor:
        """The cells that hold points, with their features reduced to one.

        Args:
            tensor_stride: of the cells' grid.
            coordinate_map_key: instead, sites that are known, each of which must hold a point.
            quantization_mode: None: the field's.
        """
        mode = self.quantization_mode if quantization_mode is None else _checked(quantization_mode)
        manager, key = self._manager, coordinate_map_key
        if key is None:
            stride = convert_to_int_list(tensor_stride, self.D)
            key, (first, inverse) = manager.field_to_sparse_insert_and_map(self._key, stride)
            self._inverse_mapping[key] = inverse
            count, features = len(first), self._F
        else:
            inverse, points = manager.field_to_sparse_map(self._key, key)
            count, features = manager.size(key), self._F[points]
            if len(points) == len(self._F):
                self._inverse_mapping[key] = inverse
            first = torch.full((count,), len(points), device=inverse.device).scatter_reduce(
                0, inverse, torch.arange(len(points), device=inverse.device), "amin"
            )
            if bool((first == len(points)).any()):
                raise ValueError(
                    f"sparse: {int((first == len(points)).sum())} sites of {key} hold no point of {self!r}"
                )
        if mode == SparseTensorQuantizationMode.RANDOM_SUBSAMPLE:
            return SparseTensor._of(features[first], key, manager)
        made = segment_reduce(features, Segments.from_index(inverse, count), REDUCTIONS[mode], ties="first")
        return SparseTensor._of(made, key, manager)

    def splat(self) -> SparseTensor:
        """All corners of cells that hold points, with the points' features weighted as in linear interpolation. Its
        way back is ``y.interpolate(self)``.
        """
        points = self.C
        low = points.floor().int()
        low[:, 0] = points[:, 0].round()
        axes = torch.cartesian_prod(*[torch.arange(2, device=points.device, dtype=torch.int32)] * self.D)
        steps = torch.nn.functional.pad(axes.reshape(-1, self.D), (1, 0))
        key, _ = self._manager.insert_and_map((low[:, None] + steps).flatten(0, 1))
        return SparseTensor._of(at_sites(self._F, points, self._manager, key), key, self._manager)

    def inverse_mapping(self, sparse_tensor_map_key: CoordinateMapKey) -> torch.Tensor:
        """(N,) the site of each point: of cells that ``sparse()`` made of the points, or of coarser ones."""
        found = self._inverse_mapping.get(sparse_tensor_map_key)
        if found is None:
            manager, key = self._manager, sparse_tensor_map_key
            if not manager.exists_field_to_sparse(self._key, key):
                found = self._through_finer(key)
            else:
                found = manager.get_field_to_sparse_map(self._key, key)[1]
            self._inverse_mapping[key] = found
        return found

    def _through_finer(self, key: CoordinateMapKey) -> torch.Tensor:
        """The site of each point by way of the finest sites that were made of the points."""
        made = self._manager.field_to_sparse_keys(self._key)
        if not made:
            raise ValueError(f"no sites were made of the points, so that none of {key} are theirs: call sparse() first")
        fine = min(made, key=lambda each: each.get_tensor_stride())
        rows, cells = self._manager.stride_map(fine, key)
        of_site = torch.full((self._manager.size(fine),), -1, device=cells.device)
        of_site[rows] = cells
        found = of_site[self._manager.get_field_to_sparse_map(self._key, fine)[1]]
        if bool((found < 0).any()):
            raise ValueError(f"{int((found < 0).sum())} points are in no cell of {key}")
        return found


def _checked(mode: SparseTensorQuantizationMode) -> SparseTensorQuantizationMode:
    mode = SparseTensorQuantizationMode(mode)
    if mode != SparseTensorQuantizationMode.RANDOM_SUBSAMPLE and mode not in REDUCTIONS:
        raise ValueError(f"a TensorField is quantised by {[each.name for each in REDUCTIONS]}, got {mode}; see splat()")
    return mode
