"""``Coordinates``: the sites of a sparse tensor, and the sites that a convolution makes of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...frozen import dataclass
from ..checks import check_count
from ..derived import Derived, Keeper, Keeps, untransformed
from ..immutable import Movable
from ..segments import Segments
from .checked import check_inside, checked_rows
from .errors import EqualSites
from .packing import (
    Bound,
    Bounds,
    Folded,
    Packing,
    bounds_of,
    distinct,
    find_rows,
    firsts,
    in_order,
    numbered,
    packing_of,
    with_room,
)
from .window import Window, per_axis


class Packed(NamedTuple):
    """Sites as ascending numbers, and a larger one behind them. order: (N,) their rows; None where these ascend."""

    packing: Packing | Folded
    keys: Tensor
    order: Tensor | None


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

    __slots__ = ("batch_size", "bounds", "facts", "rows", "sizes", "stride")

    rows: Tensor
    batch_size: int
    stride: tuple[int, ...]
    sizes: tuple[int, ...] | None
    bounds: Bounds
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
        """Make coordinates of rows that a user gives, checked. Waits for a GPU once.

        Raises TypeError, ValueError: not (N, 1 + D) integers, a negative batch or one that is not below ``batch_size``
        (NoSuchBatch), a coordinate outside of ``sizes`` (OutsideGrid), two equal rows (EqualSites), or more cells than
        64-bit keys can number (TooManyCells).
        """
        return untransformed(cls._of, rows, stride, batch_size, sizes)

    @classmethod
    def _of(cls, rows: Tensor, stride: Any, batch_size: int | None, sizes: Sequence[int] | None) -> Coordinates:
        rows = checked_rows(rows)
        dim = rows.shape[1] - 1
        stride = per_axis("stride", stride, dim)
        sizes = None if sizes is None else per_axis("spatial_shape", tuple(sizes), dim)
        if batch_size is not None:
            batch_size = check_count("batch_size", batch_size)
        host = rows.cpu()
        bounds = bounds_of(host)
        check_inside(host, bounds, batch_size, sizes)
        batch_size = bounds[0][1] + 1 if batch_size is None else batch_size
        made = cls._make(host, stride, batch_size, sizes, bounds)
        made.derived(Keys())  # which refuses equal rows
        return made.beside(rows)

    @classmethod
    def merged(cls, rows: Tensor, stride: int | Sequence[int] = 1) -> tuple[Coordinates, Tensor, Tensor]:
        """(the sites of rows that may be equal, in the order in which each is first there; the rows that are first;
        (N,) the site of each row). Raises as `of`, but for equal rows.
        """
        rows = checked_rows(rows)
        bounds = untransformed(bounds_of, rows.cpu())
        check_inside(rows, bounds, None, None)
        is_first, place = firsts(*numbered(rows))
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
    ) -> Coordinates:
        """Make coordinates of rows that are known to be right."""
        return cls._new(
            rows=rows,
            stride=stride,
            batch_size=batch_size,
            sizes=sizes,
            bounds=bounds,
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
    def on_host(self) -> Coordinates:
        """These sites in the host's memory, where all that follows from them is found."""
        return self if self.rows.is_cpu else self.derived(OnHost())

    def beside(self, rows: Tensor) -> Coordinates:
        """These sites of the host with their rows on a device."""
        if rows.is_cpu:
            return self
        there = self._make(rows, *self._parts()[1:])
        there.facts[OnHost()] = self
        return there

    @property
    def packed(self) -> Packed:
        """The sites in ascending order, column by column, on the host."""
        return self.on_host.derived(Keys())

    def ascending(self) -> Tensor:
        """The rows in this order, on the host."""
        order, rows = self.packed.order, self.on_host.rows
        return rows if order is None else rows.index_select(0, order)

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
        # a far row would widen the box in which rows are numbered
        return torch.where(inside, find_rows(torch.where(inside[:, None], sites, self.rows[:1]), self.rows), -1)

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
        return self.rows, self.stride, self.batch_size, self.sizes, self.bounds

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


class OnHost(Derived[Coordinates]):
    """These sites in the host's memory."""

    def compute(self, sites: Coordinates) -> Coordinates:
        return sites.to("cpu")


class Keys(Derived[Packed]):
    """The rows in ascending order as numbers; refuses rows that are there twice. Of sites on the host."""

    def compute(self, sites: Coordinates) -> Packed:
        packing = packing_of(sites.bounds, lambda: sites.rows.unbind(1))
        keys, rising = packing.pack(sites.rows)
        if rising:
            return Packed(packing, keys, None)
        keys, order, equal = in_order(keys[:-1], packing.bits)
        if equal is not None:
            first, second = order[equal : equal + 2].tolist()
            raise EqualSites(
                f"coordinates {second} and {first} are equal, {sites.rows[first].tolist()}: a site is there once; "
                "gsb.voxelize merges points of one voxel"
            )
        return Packed(packing, keys, order)


class OfBatches(Derived[Segments]):
    """The rows of each batch."""

    def compute(self, sites: Coordinates) -> Segments:
        return Segments.from_index(sites.rows[:, 0], sites.batch_size)


class Others(Derived[Coordinates]):
    """Sites that follow from these: found on the host."""

    def compute(self, sites: Coordinates) -> Coordinates:
        if sites.rows.is_cpu:
            return self.found(sites)
        found = sites.on_host.derived(self)
        return found.beside(found.rows.to(sites.device))

    @abstractmethod
    def found(self, sites: Coordinates) -> Coordinates:
        """The sites, of those on the host."""


@dataclass(frozen=True)
class Occupied(Others):
    """The cells of a grid that is ``stride`` times as coarse which hold a site (Choy et al., 2019)."""

    stride: tuple[int, ...]

    def found(self, sites: Coordinates) -> Coordinates:
        sizes = None if sites.sizes is None else tuple(-(-n // s) for n, s in zip(sites.sizes, self.stride))
        bounds = [(low // s, high // s) for (low, high), s in zip(sites.bounds[1:], self.stride)]
        return _cells(sites, (0,) * sites.dim, self.stride, sizes, (sites.bounds[0], *bounds))


@dataclass(frozen=True)
class Reached(Others):
    """The sites of which a kernel covers one of these: all outputs of a dense convolution that are not the bias."""

    window: Window

    def found(self, sites: Coordinates) -> Coordinates:
        window = self.window
        sizes = None if sites.sizes is None else window.coarse_sizes(sites.sizes)
        reached = _limited(sites, window.coarse_range, None)
        within = _limited(sites, window.coarse_range, sizes)
        if window.cells is not None:
            return _at_offsets(sites, window, within, coarser(sites, window.stride), sizes, coarse=True)
        if window.parts_sites and within == reached:
            return _cells(sites, window.before, window.stride, sizes, reached)
        steps = [(1, b, -d, s) for b, d, s in zip(window.before, window.dilation, window.stride)]
        return _along_axes(sites, window.kernel, steps, within, coarser(sites, window.stride), sizes)


@dataclass(frozen=True)
class Generated(Others):
    """The finer sites that a kernel covers from these: all outputs of a dense transposed convolution."""

    window: Window
    centred: bool

    def found(self, sites: Coordinates) -> Coordinates:
        window = self.window
        sizes = None if sites.sizes is None else window.fine_sizes(sites.sizes, self.centred)
        within = _limited(sites, window.fine_range, sizes)
        if window.cells is not None:
            return _at_offsets(sites, window, within, finer(sites, window.stride), sizes, coarse=False)
        steps = [(s, -b, d, 1) for b, d, s in zip(window.before, window.dilation, window.stride)]
        return _along_axes(sites, window.kernel, steps, within, finer(sites, window.stride), sizes)


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
    sites: Coordinates, window: Window, bounds: Bounds, stride: tuple[int, ...], sizes, coarse: bool
) -> Coordinates:
    """The sites of all that is reached, offset by offset, for a kernel that is no box. coarse: whether they are on the
    coarser grid.
    """
    steps = torch.tensor(window.steps)
    before, strides = (torch.tensor(x) for x in (window.before, window.stride))
    at = sites.rows[:, 1:].long()[:, None]
    if coarse:
        ahead = at + before - steps
        at, valid = ahead.div(strides, rounding_mode="floor"), (ahead % strides == 0).all(-1)
    else:
        at = at * strides - before + steps
        valid = torch.ones(at.shape[:2], dtype=torch.bool)
    if sizes is not None:
        valid &= ((at >= 0) & (at < torch.tensor(sizes))).all(-1)
    rows = torch.cat([sites.rows[:, :1].long()[:, None].expand(*at.shape[:2], 1), at], 2)[valid]
    packing = packing_of(bounds, lambda: rows.unbind(1))
    return _made(sites, packing, distinct(packing.pack(rows)[0][:-1], packing.bits), stride, sizes, bounds)


def _limited(sites: Coordinates, limits: Callable[..., Bound], sizes: Sequence[int] | None) -> Bounds:
    """Bounds of what is reached, along each axis within ``limits(axis, low, high)`` and the sizes of a bounded grid."""
    found = [limits(axis, *bound) if bound[0] <= bound[1] else bound for axis, bound in enumerate(sites.bounds[1:])]
    if sizes is not None:
        found = [(max(low, 0), min(high, size - 1)) for (low, high), size in zip(found, sizes)]
    return (sites.bounds[0], *(bound if bound[0] <= bound[1] else (0, -1) for bound in found))


def _cells(sites: Coordinates, plus: Sequence[int], stride: Sequence[int], sizes, bounds: Bounds) -> Coordinates:
    """The cells ``(site + plus) // stride`` that hold a site."""
    plus, by = (0, *plus), (1, *stride)
    packing = packing_of(
        bounds, lambda: (sites.rows + torch.tensor(plus)).div(torch.tensor(by), rounding_mode="floor").T
    )
    keys = distinct(packing.pack(sites.rows, plus=plus, by=by)[0][:-1], packing.bits)
    return _made(sites, packing, keys, coarser(sites, stride), sizes, bounds)


def _along_axes(
    sites: Coordinates, kernel: Sequence[int], steps: Sequence[Any], reached: Bounds, stride: tuple[int, ...], sizes
) -> Coordinates:
    """The sites of all that is reached, one axis after the other: a kernel is a box, so that of the sites which are
    reached along some axes each is needed once for the others. steps: as `Packing.reach` takes them.
    """
    there = Packing(with_room(reached, sites.bounds), sites.bounds)
    packing = Packing(sites.bounds, there.bounds)
    found = packing.pack(sites.rows)[0][:-1]
    for column, (offsets, to) in enumerate(zip(kernel, steps), 1):
        keys = found
        found = packing.reach(keys, column, offsets, to, there, reached[column])
        # where they reach no more than they are, they wait to be sorted until all axes are done
        if found.shape[0] > keys.shape[0] and column < len(kernel):
            found = distinct(found, packing.bits)[:-1]
    return _made(sites, there, distinct(found, packing.bits), stride, sizes, reached)


def _made(sites: Coordinates, packing, keys: Tensor, stride: tuple[int, ...], sizes, bounds: Bounds) -> Coordinates:
    """The sites of ascending keys, in the type of ``sites``, or int64 where they do not fit."""
    fits = all(-(2**31) <= low and high < 2**31 for low, high in bounds)
    rows = packing.unpack(keys[:-1], sites.rows.dtype if fits else torch.int64)
    made = Coordinates._make(rows, stride, sites.batch_size, sizes, bounds)
    made.facts[Keys()] = Packed(packing, keys, None)
    return made
