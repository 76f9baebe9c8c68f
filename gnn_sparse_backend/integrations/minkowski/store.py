"""Sites by their keys: what is given, what is made of it by strides, pruning and unions, and their batches.

Sites are kept with the axes in reverse order, in cells of their grid. The offsets of MinkowskiEngine's kernels, whose
first axis is the fastest, are then those of this package, whose last one is, and weights need no other order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...nn.voxels.maps import kept
from ...structures.coordinates import Coordinates, Occupied, united
from ...structures.segments import Segments
from .generator import Sizes, convert_to_int_list
from .key import CoordinateMapKey

Name: TypeAlias = tuple[tuple[int, ...], str]
"""A stride for each axis, and a word."""


class SiteStore:
    """Sites of ``D`` axes by their keys."""

    def __init__(self, D: int) -> None:
        if D < 1:
            raise ValueError(f"a CoordinateManager wants D, the number of axes, got {D}")
        self.D = D
        self._sites: dict[Name, Coordinates] = {}
        self._coordinates: dict[Name, Tensor] = {}
        self._fields: dict[Name, Tensor] = {}
        """Points, which have batches, too."""
        self._at_origin: dict[Name, tuple[Tensor, Segments]] = {}
        self._words = 0
        self._given: set[str] = set()
        """Words of sites that came from outside: a transposed layer stays among those of one word."""

    @kept
    def insert_and_map(
        self, coordinates: Tensor, tensor_stride: Sizes = 1, string_id: str = ""
    ) -> tuple[CoordinateMapKey, tuple[Tensor, Tensor]]:
        """Keep sites.

        Args:
            coordinates: (N, 1 + D) integers, the batch first, multiples of the stride; equal ones are one site.
            tensor_stride: how far apart neighbours are, a number or one for each axis.
            string_id: the word.

        Returns:
            Their key; (M,) the rows that were the first of each site, and (N,) the site of each row.

        Raises:
            TypeError, ValueError: coordinates are not as above. The first bad row is quoted.
        """
        stride = tuple(convert_to_int_list(tensor_stride, self.D))
        rows = self._checked(coordinates)
        sites, first, inverse = Coordinates.merged(cells_of(rows, stride), stride[::-1])
        key = self._new_key(stride, string_id, self._sites)
        if key.name[1]:
            self._given.add(key.name[1])
        self._forget_origin()
        self._sites[key.name] = sites
        self._coordinates[key.name] = rows[first].int()
        return key, (first, inverse)

    @kept
    def stride(self, coordinate_map_key: CoordinateMapKey, stride: Sizes, string_id: str = "") -> CoordinateMapKey:
        """The key of the cells, of a grid that is ``stride`` times as coarse, which hold a site."""
        of, word = coordinate_map_key.name
        steps = convert_to_int_list(stride, self.D)
        name = tuple(t * s for t, s in zip(of, steps)), string_id or word
        if name not in self._sites:
            self._sites[name] = self.sites(coordinate_map_key).derived(Occupied(tuple(reversed(steps))))
        return CoordinateMapKey(*name)

    @kept
    def prune(self, key: CoordinateMapKey, rows: Tensor) -> CoordinateMapKey:
        """The key of some sites, which are in this order."""
        sites = self.sites(key)
        pruned = self._new_key(key.name[0], "pruned", self._sites)
        self._sites[pruned.name] = Coordinates._make(
            sites.rows[rows], sites.stride, sites.batch_size, sites.sizes, sites.bounds
        )
        return pruned

    @kept
    def union_map(self, in_keys: Sequence[CoordinateMapKey], out_key: CoordinateMapKey) -> list[Tensor]:
        """Keep the sites of all keys, those of the first one before what others add, and set the key of the result.

        Returns: (2, N) for each key, its rows and those of the union.
        """
        every = [self.sites(key) for key in in_keys]
        if len({sites.stride for sites in every}) != 1:
            raise ValueError(f"a union wants sites of one stride, got {list(in_keys)}")
        sites, places = united(every[0], every[1:])
        out_key.set_key(self._new_key(in_keys[0].name[0], "merge", self._sites).name)
        self._sites[out_key.name] = sites
        places = (torch.arange(len(every[0].rows), device=sites.device), *places)
        return [torch.stack([torch.arange(len(rows), device=rows.device), rows]) for rows in places]

    @kept
    def origin(self) -> CoordinateMapKey:
        """The key of one site for each batch."""
        name = self._origin_name
        if name not in self._sites:
            every = [x[:, 0] for x in (*(each.rows for each in self._sites.values()), *self._fields.values())]
            if not every:
                raise ValueError("the CoordinateManager has no sites yet, so that nothing is known of batches")
            rows = pad(torch.cat([x.int() for x in every]).unique()[:, None], (0, self.D))
            self._sites[name], self._coordinates[name] = Coordinates.of(rows), rows
        return CoordinateMapKey(*name)

    def origin_field(self) -> CoordinateMapKey:
        """``origin``."""
        return self.origin()

    def number_of_unique_batch_indices(self) -> int:
        """How many batches there are."""
        return self.size(self.origin())

    def origin_map(self, key: CoordinateMapKey) -> tuple[Tensor, list[Tensor]]:
        """(batches,) their numbers; and the rows of each number from 0 to the last."""
        batches = self.get_coordinates(self.origin())[:, 0].long()
        _, segments = self.at_origin(key)
        order = torch.arange(segments.num_rows, device=batches.device) if segments.order is None else segments.order
        parts = order.long().split(segments.offsets.diff().tolist())
        rows = [order.new_empty(0, dtype=torch.int64)] * (int(batches.max()) + 1 if len(batches) else 0)
        for number, part in zip(batches.tolist(), parts):
            rows[number] = part
        return batches, rows

    def origin_field_map(self, key: CoordinateMapKey) -> tuple[Tensor, list[Tensor]]:
        """``origin_map`` of points."""
        return self.origin_map(key)

    @kept
    def at_origin(self, key: CoordinateMapKey) -> tuple[Tensor, Segments]:
        """(N,) which batch each row is of, counted among those that there are; and the rows of each."""
        batches = self.sites(self.origin()).rows[:, 0].contiguous()
        found = self._at_origin.get(key.name)
        if found is None:
            rows = self._fields[key.name] if key.name in self._fields else self.sites(key).rows
            index = torch.searchsorted(batches, rows[:, 0].to(batches.dtype).contiguous())
            found = self._at_origin[key.name] = index, Segments.from_index(index, len(batches))
        return found

    @kept
    def get_coordinates(self, coords_key_or_tensor_strides: CoordinateMapKey | Sizes) -> Tensor:
        """(N, 1 + D) int32, the batch first; a copy."""
        key = self._get_coordinate_map_key(coords_key_or_tensor_strides)
        found = self._coordinates.get(key.name)
        if found is None:
            steps = torch.tensor((1, *key.name[0]), device=self.sites(key).device)
            found = self._coordinates[key.name] = (reversed_axes(self.sites(key).rows) * steps).int()
        return found.clone()

    def get_unique_coordinate_map_key(self, tensor_stride: Sizes) -> CoordinateMapKey:
        """A key that no sites have."""
        return self._new_key(tuple(convert_to_int_list(tensor_stride, self.D)), "", self._sites)

    def size(self, coordinate_map_key: CoordinateMapKey) -> int:
        """How many sites there are."""
        return self.sites(coordinate_map_key).rows.shape[0]

    def sites(self, key: CoordinateMapKey) -> Coordinates:
        """The sites. Raises KeyError where there are none."""
        try:
            return self._sites[key.name]
        except KeyError:
            raise KeyError(f"the CoordinateManager has no sites of {key}; it has {sorted(self._sites)}") from None

    def _get_coordinate_map_key(self, key_or_stride: CoordinateMapKey | Sizes) -> CoordinateMapKey:
        """A key, or that of the first sites of a stride."""
        if isinstance(key_or_stride, CoordinateMapKey):
            return key_or_stride
        return first_of(convert_to_int_list(key_or_stride, self.D), self._sites)

    def _new_key(self, stride: tuple[int, ...], word: str, among: Mapping[Name, object]) -> CoordinateMapKey:
        """A key of this stride, and of this word unless that is taken."""
        found = word
        while (stride, found) in among:
            self._words += 1
            found = f"{word}-{self._words}" if word else str(self._words)
        return CoordinateMapKey(stride, found)

    @property
    def _origin_name(self) -> Name:
        return (0,) * self.D, ""

    def _forget_origin(self) -> None:
        """New sites may have new batches."""
        self._sites.pop(self._origin_name, None)
        self._at_origin.clear()

    def _checked(self, coordinates: Any) -> Tensor:
        if not isinstance(coordinates, Tensor) or coordinates.dim() != 2 or coordinates.shape[1] != self.D + 1:
            found = tuple(coordinates.shape) if isinstance(coordinates, Tensor) else type(coordinates).__name__
            raise ValueError(f"coordinates must have shape (N, {self.D + 1}), the batch first, got {found}")
        if coordinates.is_floating_point():
            raise TypeError(f"coordinates must hold integers, got {coordinates.dtype}; coordinates.floor().int() does")
        return coordinates.detach()


def first_of(stride: Sequence[int], among: Mapping[Name, object]) -> CoordinateMapKey:
    """The key of the first of this stride. Raises KeyError where there is none."""
    found = next((name for name in among if name[0] == tuple(stride)), None)
    if found is None:
        raise KeyError(f"the CoordinateManager has nothing of stride {list(stride)}; it has {sorted(among)}")
    return CoordinateMapKey(*found)


def reversed_axes(rows: Tensor) -> Tensor:
    """(N, 1 + D) coordinates with the axes in reverse order, the batch first as before."""
    return torch.cat([rows[:, :1], rows[:, 1:].flip(1)], 1)


def cells_of(rows: Tensor, stride: tuple[int, ...]) -> Tensor:
    """Coordinates in cells of their grid, with the axes in reverse order. Raises ValueError that quotes the first row
    which is between them.
    """
    found = reversed_axes(rows)
    if set(stride) == {1}:
        return found
    steps = torch.tensor((1, *reversed(stride)), device=rows.device, dtype=rows.dtype)
    between = (found % steps).any(1)
    if bool(between.any()):
        at = int(between.nonzero()[0])
        raise ValueError(
            f"coordinates[{at}] = {rows[at].tolist()} is no multiple of the tensor_stride {list(stride)}: sites of a "
            "grid of that stride are that far apart"
        )
    return found.div(steps, rounding_mode="floor")
