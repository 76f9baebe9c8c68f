"""``SparseTensor``: features at the sites of a grid."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...ops.grouped.segment_reduce import segment_reduce
from ...structures.segments import Segments
from .enums import GPUMemoryAllocatorType, MinkowskiAlgorithm, SparseTensorQuantizationMode
from .generator import Sizes
from .interpolation import at_points
from .key import CoordinateMapKey
from .manager import CoordinateManager
from .modes import manager_for
from .tensor import Tensor, check_features

if TYPE_CHECKING:
    from typing_extensions import Self

    from .field import TensorField

REDUCTIONS = {
    SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE: "mean",
    SparseTensorQuantizationMode.UNWEIGHTED_SUM: "sum",
    SparseTensorQuantizationMode.MAX_POOL: "max",
}
"""How rows of one site are reduced to one."""


class SparseTensor(Tensor):
    """Features at integer coordinates.

    Args:
        features: (N, channels).
        coordinates: (N, 1 + D) integers, the batch first; they count in cells of the finest grid. Floating ones are
            rounded down, with a warning.
        tensor_stride: how far apart neighbours are, a number or one for each axis.
        coordinate_map_key, coordinate_manager: instead of coordinates, sites that are known. The manager alone: where
            the coordinates are kept; None for a new one, or the global one.
        quantization_mode: what becomes of rows with equal coordinates: the first one stays (``RANDOM_SUBSAMPLE``), or
            they are averaged, summed, or their maxima taken, with gradients.
        allocator_type, minkowski_algorithm: have no effect.
        requires_grad: whether the features' gradient will be asked for.
        device: where to bring features and coordinates.

    Attributes, where coordinates were given:
        unique_index: (M,) the rows that were the first of each site.
        inverse_mapping: (N,) the site of each row.

    Raises:
        TypeError, ValueError: an argument is not as above; it is quoted.
    """

    coordinate_map_key: CoordinateMapKey

    def __init__(
        self,
        features: torch.Tensor,
        coordinates: torch.Tensor | None = None,
        tensor_stride: Sizes = 1,
        coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
        quantization_mode: SparseTensorQuantizationMode = SparseTensorQuantizationMode.RANDOM_SUBSAMPLE,
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
        requires_grad: bool | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_features(features, "SparseTensor")
        self.quantization_mode = SparseTensorQuantizationMode(quantization_mode)
        if device is not None:
            features = features.to(device)
        if coordinates is not None:
            if coordinate_map_key is not None:
                raise ValueError("SparseTensor: give coordinates or a coordinate_map_key, not both")
            coordinates = _integers(coordinates, features)
            if coordinate_manager is None:
                D = coordinates.shape[1] - 1
                coordinate_manager = manager_for(D, minkowski_algorithm=minkowski_algorithm)
            coordinate_map_key, (self.unique_index, self.inverse_mapping) = coordinate_manager.insert_and_map(
                coordinates, tensor_stride
            )
            features = self._quantized(features)
        elif coordinate_map_key is None or coordinate_manager is None:
            raise ValueError("SparseTensor: give coordinates, or a coordinate_map_key with its coordinate_manager")
        if len(features) != coordinate_manager.size(coordinate_map_key):
            raise ValueError(
                f"SparseTensor: features must have a row for each of {coordinate_manager.size(coordinate_map_key)} "
                f"sites, got {tuple(features.shape)}"
            )
        if requires_grad is not None:
            features.requires_grad_(requires_grad)
        self._F, self._C = features, None
        self._manager, self.coordinate_map_key = coordinate_manager, coordinate_map_key

    @classmethod
    def _of(cls, features: torch.Tensor, key: CoordinateMapKey, manager: CoordinateManager) -> Self:
        """Features that are known to have a row for each site."""
        made = object.__new__(cls)
        made._F, made._C, made._manager, made.coordinate_map_key = features, None, manager, key
        made.quantization_mode = SparseTensorQuantizationMode.RANDOM_SUBSAMPLE
        return made

    @property
    def _key(self) -> CoordinateMapKey:
        return self.coordinate_map_key

    def _like(self, features: torch.Tensor) -> Self:
        return self._of(features, self.coordinate_map_key, self._manager)

    def _take(self, key: CoordinateMapKey) -> None:
        self.coordinate_map_key = key

    def _at(self, key: CoordinateMapKey) -> torch.Tensor:
        return self._manager.get_coordinates(key)

    def _quantized(self, features: torch.Tensor) -> torch.Tensor:
        """A row for each site."""
        sites = len(self.unique_index)
        if sites == len(features):
            return features
        if self.quantization_mode == SparseTensorQuantizationMode.RANDOM_SUBSAMPLE:
            return features[self.unique_index]
        if self.quantization_mode not in REDUCTIONS:
            raise ValueError(
                f"SparseTensor: {len(features) - sites} coordinates are there already, which {self.quantization_mode} "
                "leaves as they are; choose another quantization_mode, or TensorField.splat() for points"
            )
        of_sites = Segments.from_index(self.inverse_mapping, sites)
        return segment_reduce(features, of_sites, REDUCTIONS[self.quantization_mode], ties="first")

    def _joined(self, other: Self, compute: Callable[[Any, Any], torch.Tensor]) -> Self:
        """On the union of two sets of sites. As in MinkowskiEngine, a site of ``self`` alone keeps its features; one
        of ``other`` alone is computed with zeros.
        """
        key = CoordinateMapKey(self.D + 1)
        _, (_, rows) = self._manager.union_map([self._key, other._key], key)
        new = self._manager.size(key) - len(self)
        features = torch.nn.functional.pad(self._F, (0, 0, 0, new)) if new else self._F
        features = features.index_copy(0, rows, compute(features[rows], other._F))
        return self._of(features, key, self._manager)

    def sparse(
        self,
        min_coords: torch.Tensor | None = None,
        max_coords: torch.Tensor | None = None,
        contract_coords: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(a sparse tensor of PyTorch, (batches, *cells, channels); (1, D) the coordinates of its first cell; (D,) the
        stride).

        Args:
            min_coords, max_coords: (D,) the first and the last coordinates, multiples of the stride; None: those that
                there are.
            contract_coords: whether cells are those of the tensor's own grid, and the first coordinates counted so.
        """
        stride = torch.tensor(self.tensor_stride, dtype=torch.int32, device=self.device)
        coordinates = self.C[:, 1:]
        low = coordinates.amin(0) if min_coords is None else min_coords.to(self.device).flatten()
        high = None if max_coords is None else max_coords.to(self.device).flatten()
        _check_multiples("min_coords", low, stride)
        cells = coordinates - low
        if high is not None:
            _check_multiples("max_coords", high, stride)
        if contract_coords:
            cells, low = cells // stride, low // stride
            high = None if high is None else high // stride
        indices = torch.cat([self.C[:, :1], cells], 1).long().t()
        size: list[torch.Size] = []
        if high is not None:
            batches = int(self._manager.get_coordinates(self._manager.origin())[:, 0].max()) + 1
            size = [torch.Size([batches, *(high - low + 1).tolist(), self._F.shape[1]])]
        made = torch.sparse_coo_tensor(indices, self._F, *size, check_invariants=False)
        return made, low[None], stride.cpu()

    def dense(
        self,
        shape: torch.Size | None = None,
        min_coordinate: torch.Tensor | int | None = None,
        contract_stride: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """((batches, channels, *cells) zeros where there is no site; the smallest coordinates; (D,) the stride).

        Args:
            shape: of the result; None: as many cells from ``min_coordinate`` as hold all sites. Its channels count for
                nothing.
            min_coordinate: (D,) the coordinates of the first cell, multiples of the stride; None: 0, and no coordinate
                may be negative.
            contract_stride: whether cells are those of the tensor's own grid.
        """
        stride = torch.tensor(self.tensor_stride, dtype=torch.int32)
        if not len(self):
            if shape is None:
                raise ValueError("dense: a tensor without sites wants the shape of the result")
            empty = self._F.new_zeros((shape[0], self._F.shape[1], *shape[2:]))
            return empty, torch.zeros(self.D, dtype=torch.int32, device=self.device), stride
        step = stride.to(self.device)
        cells = self.C[:, 1:]
        if min_coordinate is None:
            low = cells.amin(0, keepdim=True)
            if bool((low < 0).any()):
                raise ValueError(f"dense: there are negative coordinates, {low.tolist()}; give min_coordinate")
        else:
            low = torch.as_tensor(min_coordinate, dtype=torch.int32, device=self.device).expand(self.D)[None]
            cells = cells - low
        _check_multiples("min_coordinate", low, step)
        if contract_stride:
            cells = cells // step
        if shape is None:
            counts = (cells.amax(0) + 1).tolist()
            shape = torch.Size([int(self.C[:, 0].max()) + 1, self._F.shape[1], *counts])
        made = self._F.new_zeros((shape[0], *shape[2:], self._F.shape[1]))
        inside = (cells >= 0) & (cells < torch.tensor(shape[2:], device=self.device))
        if not bool(inside.all()) or int(self.C[:, 0].max()) >= shape[0]:
            at = int((~inside.all(1) | (self.C[:, 0] >= shape[0])).nonzero()[0])
            raise ValueError(f"dense: the site {self.C[at].tolist()} is outside of {tuple(shape)} from {low.tolist()}")
        index = (self.C[:, 0].long(), *cells.long().unbind(1))
        return made.index_put(index, self._F).movedim(-1, 1), low, stride

    def slice(self, X: Tensor) -> TensorField:
        """The features of this tensor at the points, or rows, that ``X`` was made of.

        X: a ``TensorField`` whose ``sparse()`` is on this grid or on a finer one, or a ``SparseTensor`` of coordinates,
            with the same sites.
        """
        return self._sliced(X, None)

    def cat_slice(self, X: Tensor) -> TensorField:
        """``slice``, with the features of ``X`` behind. ``X`` is a ``TensorField``."""
        return self._sliced(X, X.F)

    def _sliced(self, X: Tensor, beside: torch.Tensor | None) -> TensorField:
        from .field import TensorField

        usual = SparseTensorQuantizationMode.RANDOM_SUBSAMPLE, SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE
        if not isinstance(X, (SparseTensor, TensorField)):
            raise TypeError(f"slice wants a TensorField or SparseTensor, got {type(X).__name__}")
        if X.quantization_mode not in usual:
            raise ValueError(f"slice is for RANDOM_SUBSAMPLE and UNWEIGHTED_AVERAGE, got {X.quantization_mode}")
        if isinstance(X, TensorField):
            features = self._F[X.inverse_mapping(self.coordinate_map_key)]
            return X._like(features if beside is None else torch.cat([features, beside], 1))
        if not self._same_key(X) or not hasattr(X, "inverse_mapping"):
            raise ValueError(f"slice wants the tensor of coordinates that this one was computed from, got {X!r}")
        if beside is not None and len(beside) != len(X.inverse_mapping):
            raise ValueError("cat_slice: the rows that became one site are gone; make a TensorField, and its sparse()")
        features, rows = self._F[X.inverse_mapping], self.C[X.inverse_mapping]
        return TensorField(
            features if beside is None else torch.cat([features, beside], 1),
            coordinates=rows,
            coordinate_manager=self._manager,
            quantization_mode=self.quantization_mode,
        )

    def interpolate(self, X: TensorField) -> TensorField:
        """The features at the points of ``X``, interpolated linearly: the way back of its ``splat()``."""
        return X._like(at_points(self, X.C))

    def features_at_coordinates(self, query_coordinates: torch.Tensor) -> torch.Tensor:
        """(P, channels) linear interpolation at (P, 1 + D) points, the batch first; sites that are not there are 0."""
        if query_coordinates.dtype != self.dtype or query_coordinates.device != self.device:
            raise ValueError(
                f"points must be {self.dtype} on {self.device}, as the features are, got {query_coordinates.dtype} on "
                f"{query_coordinates.device}"
            )
        return at_points(self, query_coordinates)


def _integers(coordinates: Any, features: torch.Tensor) -> torch.Tensor:
    if not isinstance(coordinates, torch.Tensor) or coordinates.dim() != 2:
        raise ValueError(f"SparseTensor: coordinates must be a tensor of shape (N, 1 + D), got {coordinates!r}")
    if len(coordinates) != len(features):
        raise ValueError(
            f"SparseTensor: features and coordinates must have one number of rows, got {tuple(features.shape)} and "
            f"{tuple(coordinates.shape)}"
        )
    if coordinates.is_floating_point():
        warnings.warn("coordinates are rounded down; .floor().int() says so", stacklevel=3)
        coordinates = coordinates.floor().int()
    return coordinates.to(features.device)


def _check_multiples(name: str, coordinates: torch.Tensor, stride: torch.Tensor) -> None:
    if bool((coordinates % stride).any()):
        raise ValueError(f"{name} must be multiples of the stride {stride.tolist()}, got {coordinates.tolist()}")


def _get_coordinate_map_key(
    input: SparseTensor,
    coordinates: torch.Tensor | CoordinateMapKey | SparseTensor | None = None,
    tensor_stride: Sizes = 1,
    expand_coordinates: bool = False,
) -> CoordinateMapKey:
    """The key of given sites, which is set later where there are none."""
    if coordinates is None or expand_coordinates:
        return CoordinateMapKey(input.D + 1)
    if isinstance(coordinates, torch.Tensor):
        return input._manager.insert_and_map(coordinates, tensor_stride)[0]
    return coordinates.coordinate_map_key if isinstance(coordinates, SparseTensor) else coordinates
