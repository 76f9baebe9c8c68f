"""Points by their keys, the cells that hold them, and the sites around them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from ...nn.voxels.maps import kept
from .generator import Sizes, convert_to_int_list
from .key import CoordinateMapKey
from .store import Name, SiteStore, cells_of, first_of


class PointStore(SiteStore):
    """Sites and points of ``D`` axes by their keys."""

    def __init__(self, D: int) -> None:
        super().__init__(D)
        self._cells_of_fields: dict[tuple[Name, Name], tuple[Tensor, Tensor]] = {}

    def insert_field(self, coordinates: Tensor, tensor_stride: Sizes = 1, string_id: str = "") -> CoordinateMapKey:
        """Keep (N, 1 + D) points, the batch first."""
        if coordinates.dim() != 2 or coordinates.shape[1] != self.D + 1:
            raise ValueError(f"points must have shape (N, {self.D + 1}), got {tuple(coordinates.shape)}")
        points = coordinates.detach().clone()
        key = self._new_key(tuple(convert_to_int_list(tensor_stride, self.D)), string_id, self._fields)
        self._forget_origin()
        self._fields[key.name] = points if points.is_floating_point() else points.float()
        return key

    def get_coordinate_field(self, coords_key_or_tensor_strides: CoordinateMapKey | Sizes) -> Tensor:
        """(N, 1 + D) points, the batch first; a copy."""
        key = coords_key_or_tensor_strides
        if not isinstance(key, CoordinateMapKey):
            key = first_of(convert_to_int_list(key, self.D), self._fields)
        try:
            return self._fields[key.name].clone()
        except KeyError:
            raise KeyError(f"the CoordinateManager has no points of {key}; it has {sorted(self._fields)}") from None

    @kept
    def field_to_sparse_insert_and_map(
        self, field_map_key: CoordinateMapKey, sparse_tensor_stride: Sizes, sparse_tensor_string_id: str = ""
    ) -> tuple[CoordinateMapKey, tuple[Tensor, Tensor]]:
        """Keep the cells of a grid that hold points: ``insert_and_map`` of them."""
        stride = convert_to_int_list(sparse_tensor_stride, self.D)
        cells = self._cells_at(field_map_key, stride)
        key, maps = self.insert_and_map(cells, stride, sparse_tensor_string_id)
        self._cells_of_fields[field_map_key.name, key.name] = maps
        return key, maps

    @kept
    def field_to_sparse_map(
        self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey
    ) -> tuple[Tensor, Tensor]:
        """(sites, points) of every point whose cell is one of the sites."""
        cells = self._cells_at(field_map_key, sparse_map_key.get_tensor_stride())
        rows = self.sites(sparse_map_key).rows_of(cells_of(cells, sparse_map_key.name[0]))
        points = (rows >= 0).nonzero().squeeze(1)
        return rows[points], points

    def exists_field_to_sparse(self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey) -> bool:
        """Whether the sites were made of the points."""
        return (field_map_key.name, sparse_map_key.name) in self._cells_of_fields

    def field_to_sparse_keys(self, field_map_key: CoordinateMapKey) -> list[CoordinateMapKey]:
        """The sites that were made of the points."""
        return [CoordinateMapKey(*made) for of, made in self._cells_of_fields if of == field_map_key.name]

    def get_field_to_sparse_map(
        self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey
    ) -> tuple[Tensor, Tensor]:
        """(the points that were the first of each site, the site of each point) of sites that were made of them."""
        return self._cells_of_fields[field_map_key.name, sparse_map_key.name]

    @kept
    def interpolation_map_weight(self, key: CoordinateMapKey, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sites at the corners of the cells that hold points: (sites, points, weights of linear interpolation).

        samples: (N, 1 + D) floating points, the batch first. Weights are of their type.
        """
        steps = torch.tensor(key.get_tensor_stride(), device=samples.device)
        points = samples.detach()[:, 1:]
        low = points.div(steps, rounding_mode="floor").long()
        beyond = points / steps - low
        corners = torch.tensor(list(itertools.product((0, 1), repeat=self.D)), device=samples.device)
        cells = (low + corners[:, None]).flatten(0, 1)
        weights = torch.where(corners[:, None] == 1, beyond, 1 - beyond).prod(-1).flatten()
        batches = samples[:, :1].round().long().repeat(len(corners), 1)
        rows = self.sites(key).rows_of(torch.cat([batches, cells.flip(1)], 1))
        found = (rows >= 0).nonzero().squeeze(1)
        return rows[found], found % len(points), weights[found]

    def _cells_at(self, key: CoordinateMapKey, stride: Sequence[int]) -> Tensor:
        """(N, 1 + D) int32 the cell of each point, as its first corner."""
        points = self.get_coordinate_field(key)
        steps = torch.tensor(stride, device=points.device)
        cells = points[:, 1:].div(steps, rounding_mode="floor").long() * steps
        return torch.cat([points[:, :1].round().long(), cells], 1).int()
