"""``Coordinates``: the sites of a sparse tensor, and the sites that a convolution makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...formats.counts import read
from ..checks import as_index_vector, check_count
from ..derived import Derived, Keeper, Keeps
from ..immutable import Movable
from ..segments import Segments
from .packing import Bounds, Packing, distinct, firsts, joined
from .window import Window, per_axis

MOST_AXES = 5


class Coordinates(Movable):
    """Distinct sites of a grid, in the user's order, for all tensors on them.

    Attributes:
        rows: (N, 1 + D) int32 or int64, the batch first, D from 1 to 5.
        batch_size: how many batches there are, with or without sites.
        stride: (D,) how many cells of the finest grid a step along each axis is.
        sizes: (D,) cells of a bounded grid, whose sites are in [0, size); None: it has no bounds, and coordinates may
            be negative.
        bounds: of the columns, not always tight.
        facts: what was derived of them (`derived`): orders, coarser and finer sites, kernel maps.
    """

    __slots__ = ("batch_size", "bounds", "facts", "in_order", "rows", "sizes", "stride")

    rows: Tensor
    batch_size: int
    stride: tuple[int, ...]
    sizes: tuple[int, ...] | None
    bounds: Bounds
    in_order: bool
    facts: dict[Any, Any]

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("make Coordinates with Coordinates.of, or a SparseTensor")

    @classmethod
    def of(
        cls,
        rows: Tensor,
        stride: int | Sequence[int] = 1,
        batch_size: int | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Coordinates:
        """Make coordinates of rows that a user gives, checked. Waits for a GPU once, and once more for their order.

        Raises TypeError, ValueError: not (N, 1 + D) integers, a negative batch, one that is not below ``batch_size``,
        a coordinate outside of ``sizes``, two equal rows, or more cells than 64-bit keys can number.
        """
        rows = _checked(rows)
        dim = rows.shape[1] - 1
        stride = per_axis("stride", stride, dim)
        sizes = None if sizes is None else per_axis("spatial_shape", tuple(sizes), dim)
        if batch_size is not None:
            check_count("batch_size", batch_size)
        bounds = _bounds(rows)
        _check_inside(rows, bounds, batch_size, sizes)
        batch_size = bounds[0][1] + 1 if batch_size is None else int(batch_size)
        made = cls._make(rows, stride, batch_size, sizes, bounds)
        made.derived(Order())  # which refuses equal rows
        return made

    @classmethod
    def merged(cls, rows: Tensor, stride: int | Sequence[int] = 1) -> tuple[Coordinates, Tensor, Tensor]:
        """(the sites of rows that may be equal, in the order in which each is first there; the rows that are first;
        (N,) the site of each row). Raises as `of`, but for equal rows.
        """
        rows = _checked(rows)
        bounds = _bounds(rows)
        _check_inside(rows, bounds, None, None)
        is_first, place = firsts(Packing(bounds).pack(rows))
        first = is_first.nonzero().squeeze(1)
        kept = rows if first.numel() == rows.shape[0] else rows[first]
        return (
            cls._make(kept, per_axis("stride", stride, rows.shape[1] - 1), bounds[0][1] + 1, None, bounds),
            first,
            place,
        )

    @classmethod
    def _make(
        cls,
        rows: Tensor,
        stride: tuple[int, ...],
        batch_size: int,
        sizes: tuple[int, ...] | None,
        bounds: Bounds,
        in_order: bool = False,
    ) -> Coordinates:
        """Make coordinates of rows that are known to be right. in_order: they ascend."""
        return cls._new(
            rows=rows,
            stride=stride,
            batch_size=batch_size,
            sizes=sizes,
            bounds=bounds,
            in_order=in_order,
            facts={},
        )._found_by(rows, batch_size, stride, sizes)

    @property
    def dim(self) -> int:
        """D."""
        return self.rows.shape[1] - 1

    @property
    def device(self) -> torch.device:
        return self.rows.device

    @property
    def order(self) -> Tensor | None:
        """(N,) the rows in ascending order, column by column; None where they are."""
        return None if self.in_order else self.derived(Order())[0]

    @property
    def ascending(self) -> Tensor:
        """The rows in this order."""
        order = self.order
        return self.rows if order is None else self.rows.index_select(0, order)

    def reached(self, window: Window) -> Coordinates:
        """The sites of which a kernel covers one of these (`Reached`)."""
        return self.derived(Reached(window))

    def occupied(self, stride: tuple[int, ...]) -> Coordinates:
        """The cells of a coarser grid that hold one of these (`Occupied`)."""
        return self.derived(Occupied(stride))

    def generated(self, window: Window, centred: bool) -> Coordinates:
        """The finer sites that a kernel covers from these (`Generated`)."""
        return self.derived(Generated(window, centred))

    @property
    def of_batches(self) -> Segments:
        """The rows of each batch."""
        return self.derived(OfBatches())

    def rows_of(self, sites: Tensor) -> Tensor:
        """(M,) int64 the row of each of (M, 1 + D) sites, -1 where there is no such site."""
        inside = torch.ones(sites.shape[0], dtype=torch.bool, device=sites.device)
        for column, (low, high) in zip(sites.unbind(1), self.bounds):
            inside &= (column >= low) & (column <= high)
        if not self.rows.shape[0]:
            return inside.long() - 1
        packing = Packing(self.bounds)
        keys, order, wanted = packing.pack(self.ascending), self.order, packing.pack(sites)
        place = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
        there = inside & (keys[place] == wanted)
        return torch.where(there, place if order is None else order[place], -1)

    def same_as(self, other: Coordinates) -> bool:
        """Whether the same sites are in the same order, on grids of one stride."""
        if self is other:
            return True
        return (
            self.stride == other.stride
            and self.rows.shape == other.rows.shape
            and self.device == other.device
            and bool((self.rows == other.rows).all())
        )

    def _parts(self) -> tuple[Any, ...]:
        return self.rows, self.stride, self.batch_size, self.sizes, self.bounds, self.in_order

    def keepers(self) -> Iterator[Keeper]:
        """The sites, and the sites and kernel maps that were made of them."""
        own = f"sites at stride {'x'.join(map(str, self.stride))}"
        yield Keeper(own, self, (self.rows,))
        for value in list(self.facts.values()):
            if isinstance(value, Keeps):
                for keeper in value.keepers():
                    name = keeper.of if isinstance(value, Coordinates) else f"{keeper.of}, {own}"
                    yield keeper._replace(of=name, derived=True)

    def __repr__(self) -> str:
        return (
            f"Coordinates({self.rows.shape[0]} sites, {self.batch_size} batches, stride {self.stride}, {self.device})"
        )


@dataclass(frozen=True)
class Order(Derived[tuple[Tensor | None]]):
    """(the rows in ascending order,), None where they are; refuses rows that are there twice."""

    def compute(self, sites: Coordinates) -> tuple[Tensor | None]:
        keys = Packing(sites.bounds).pack(sites.rows)
        (rising,) = read((keys[1:] > keys[:-1]).all())
        if rising:
            return (None,)
        keys, order = keys.sort(stable=True)
        again = keys[1:] == keys[:-1]
        if bool(again.any()):
            at = int(again.nonzero()[0])
            first, second = order[at : at + 2].tolist()
            raise ValueError(
                f"coordinates {second} and {first} are equal, {sites.rows[first].tolist()}: a site is there once; "
                "gsb.voxelize merges points of one voxel"
            )
        return (order,)


class OfBatches(Derived[Segments]):
    """The rows of each batch."""

    def compute(self, sites: Coordinates) -> Segments:
        return Segments.from_index(sites.rows[:, 0], sites.batch_size)


@dataclass(frozen=True)
class Occupied(Derived[Coordinates]):
    """The cells of a grid that is ``stride`` times as coarse which hold a site (Choy et al., 2019)."""

    stride: tuple[int, ...]

    def compute(self, sites: Coordinates) -> Coordinates:
        steps = (1, *self.stride)
        packing = Packing(tuple((low // s, high // s) for (low, high), s in zip(sites.bounds, steps)))
        cells = sites.rows.div(torch.tensor(steps, device=sites.device), rounding_mode="floor")
        sizes = None if sites.sizes is None else tuple(-(-n // s) for n, s in zip(sites.sizes, self.stride))
        return _made(sites, packing, distinct(packing.pack(cells)), coarser(sites, self.stride), sizes, packing.bounds)


@dataclass(frozen=True)
class Reached(Derived[Coordinates]):
    """The sites of which a kernel covers one of these: all outputs of a dense convolution that are not the bias."""

    window: Window

    def compute(self, sites: Coordinates) -> Coordinates:
        window = self.window
        sizes = None if sites.sizes is None else window.coarse_sizes(sites.sizes)
        if window.cells is not None:
            return _at_offsets(sites, window, window.coarse_range, coarser(sites, window.stride), sizes, coarse=True)

        def reach(axis: int, fine: Tensor) -> tuple[Tensor, Tensor | None]:
            offsets = window.dilation[axis] * torch.arange(window.kernel[axis], device=fine.device)
            ahead = fine[:, None] + (window.before[axis] - offsets)
            s = window.stride[axis]
            return ahead.div(s, rounding_mode="floor"), ahead % s == 0 if s > 1 else None

        return _along_axes(sites, reach, window.coarse_range, coarser(sites, window.stride), sizes)


@dataclass(frozen=True)
class Generated(Derived[Coordinates]):
    """The finer sites that a kernel covers from these: all outputs of a dense transposed convolution."""

    window: Window
    centred: bool

    def compute(self, sites: Coordinates) -> Coordinates:
        window = self.window
        sizes = None if sites.sizes is None else window.fine_sizes(sites.sizes, self.centred)
        if window.cells is not None:
            return _at_offsets(sites, window, window.fine_range, finer(sites, window.stride), sizes, coarse=False)

        def reach(axis: int, coarse: Tensor) -> tuple[Tensor, Tensor | None]:
            offsets = window.dilation[axis] * torch.arange(window.kernel[axis], device=coarse.device)
            return coarse[:, None] * window.stride[axis] + (offsets - window.before[axis]), None

        return _along_axes(sites, reach, window.fine_range, finer(sites, window.stride), sizes)


def finer(sites: Any, stride: Sequence[int]) -> tuple[int, ...]:
    """Strides of the grid that is finer than that of ``sites`` by ``stride``; raises ValueError where there is none."""
    if any(t % s for t, s in zip(sites.stride, stride)):
        raise ValueError(
            f"a grid of stride {sites.stride} has no finer one by {tuple(stride)}: strides are whole numbers; give the "
            "SparseTensor the stride that it has in the finer grid"
        )
    return tuple(t // s for t, s in zip(sites.stride, stride))


def coarser(sites: Any, stride: Sequence[int]) -> tuple[int, ...]:
    """Strides of the grid that is coarser than that of ``sites`` by ``stride``."""
    return tuple(t * s for t, s in zip(sites.stride, stride))


def _at_offsets(
    sites: Coordinates, window: Window, limits, stride: tuple[int, ...], sizes, coarse: bool
) -> Coordinates:
    """The sites of all that is reached, offset by offset, for a kernel that is no box. coarse: whether they are on the
    coarser grid.
    """
    bounds = _limited(sites, limits, sizes)
    steps = torch.tensor(window.steps, device=sites.device)
    before, strides = (torch.tensor(x, device=sites.device) for x in (window.before, window.stride))
    at = sites.rows[:, 1:].long()[:, None]
    if coarse:
        ahead = at + before - steps
        at, valid = ahead.div(strides, rounding_mode="floor"), (ahead % strides == 0).all(-1)
    else:
        at = at * strides - before + steps
        valid = torch.ones(at.shape[:2], dtype=torch.bool, device=sites.device)
    if sizes is not None:
        valid &= ((at >= 0) & (at < torch.tensor(sizes, device=sites.device))).all(-1)
    rows = torch.cat([sites.rows[:, :1].long()[:, None].expand(*at.shape[:2], 1), at], 2)[valid]
    packing = Packing(bounds)
    return _made(sites, packing, distinct(packing.pack(rows)), stride, sizes, bounds)


def _limited(sites: Coordinates, limits, sizes) -> Bounds:
    """Bounds of what is reached of the sites, within the sizes."""
    bounds = [limits(axis, *bound) if bound[0] <= bound[1] else bound for axis, bound in enumerate(sites.bounds[1:])]
    if sizes is not None:
        bounds = [(max(low, 0), min(high, size - 1)) for (low, high), size in zip(bounds, sizes)]
    return sites.bounds[0], *(bound if bound[0] <= bound[1] else (0, -1) for bound in bounds)


def _along_axes(sites: Coordinates, reach, limits, stride: tuple[int, ...], sizes) -> Coordinates:
    """The sites of all that is reached, one axis after the other: a kernel is a box, so that of the sites which are
    reached along some axes each is needed once for the others.
    """
    reached = _limited(sites, limits, sizes)
    packing = Packing(joined(sites.bounds, reached))
    keys = packing.pack(sites.rows)
    for axis, (low, _) in enumerate(packing.bounds[1:]):
        step = packing.strides[axis + 1]
        at = keys.div(step, rounding_mode="floor") % packing.sizes[axis + 1] + low
        found, valid = reach(axis, at)
        if sizes is not None:
            inside = (found >= 0) & (found < sizes[axis])
            valid = inside if valid is None else valid & inside
        moved = keys[:, None] + (found - at[:, None]) * step
        keys = distinct(moved.flatten() if valid is None else moved[valid])
    return _made(sites, packing, keys, stride, sizes, reached)


def _made(sites: Coordinates, packing: Packing, keys: Tensor, stride: tuple[int, ...], sizes, bounds) -> Coordinates:
    """The sites of ascending keys, in the type of ``sites``, or int64 where they do not fit."""
    fits = all(-(2**31) <= low and high < 2**31 for low, high in bounds)
    rows = packing.unpack(keys).to(sites.rows.dtype if fits else torch.int64)
    return Coordinates._make(rows, stride, sites.batch_size, sizes, bounds, in_order=True)


def _checked(rows: object) -> Tensor:
    """(N, 1 + D) integers of a type that does not wrap."""
    if isinstance(rows, Tensor) and rows.dtype.is_floating_point:
        raise TypeError(
            f"coordinates must hold integers, got {rows.dtype}; gsb.voxelize(points, voxel_size) makes them of points"
        )
    if not isinstance(rows, Tensor) or rows.dim() != 2 or not 2 <= rows.shape[1] <= MOST_AXES + 1:
        found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(
            f"coordinates must be a tensor of shape (N, 1 + D), the batch first, D from 1 to {MOST_AXES}, got {found}"
        )
    as_index_vector("coordinates", rows.reshape(-1))
    with torch.inference_mode(False):  # made now, kept for a backward pass later
        return rows.detach().to(rows.dtype if rows.dtype == torch.int32 else torch.int64, copy=True).contiguous()


def _bounds(rows: Tensor) -> Bounds:
    if not rows.shape[0]:
        return ((0, -1),) * rows.shape[1]
    low, high = torch.stack(torch.aminmax(rows, dim=0)).tolist()
    return tuple(zip(low, high))


def _check_inside(rows: Tensor, bounds: Bounds, batch_size: int | None, sizes: Sequence[int] | None) -> None:
    limits = [batch_size, *(sizes or (None,) * (len(bounds) - 1))]
    for column, ((low, high), limit) in enumerate(zip(bounds, limits)):
        if low > high or ((low >= 0 or (column and limit is None)) and (limit is None or high < limit)):
            continue
        bad = (rows[:, column] < 0) | (rows[:, column] >= (2**62 if limit is None else limit))
        at = int(bad.nonzero()[0])
        what = "batch" if column == 0 else f"coordinate along axis {column - 1}"
        allowed = "not negative" if limit is None else f"in [0, {limit})"
        raise ValueError(f"coordinates[{at}] = {rows[at].tolist()}: the {what} must be {allowed}")
