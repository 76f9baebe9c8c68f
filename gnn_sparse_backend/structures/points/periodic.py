"""Edges between points nearer than a radius, across the walls of periodic cells.

Points are moved into their cell, copied to wherever they may be near to a point in it, and searched there like any
others, by the grid of `search`: a cell may be skewed, and smaller than the radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .clouds import Cloud, begins_of, checked_points
from .search import within

MOST = 1 << 31
"""Copies of points are fewer."""
_SLACK = 1e-9


class RadiusGraph(NamedTuple):
    """Edges by ascending destination, in the types and on the device of the positions.

    Attributes:
        edge_index: (2, E) int64, sources and destinations.
        shifts: (E, D) int64, how many cells each edge crosses along each axis.
        vectors: (E, D) ``pos[destination] - pos[source] + shift @ cell``, with gradients to the positions and the cell.
    """

    edge_index: Tensor
    shifts: Tensor
    vectors: Tensor

    @property
    def distances(self) -> Tensor:
        """(E,) the lengths of the vectors, with gradients."""
        return torch.linalg.vector_norm(self.vectors, dim=1)


def radius_graph(
    pos: Tensor,
    r: float,
    cell: Tensor | None = None,
    pbc: bool | Sequence[bool] | Tensor | None = None,
    batch: Tensor | None = None,
    max_num_neighbors: int | None = None,
) -> RadiusGraph:
    """Find all pairs of points nearer than ``r``, in both directions, and with a cell those with images of points.

        edges = gsb.radius_graph(positions, 5.0, cell=torch.eye(3) * 12.4)
        sources, destinations = edges.edge_index
        energy = potential(edges.distances).sum()

    A point has an edge to its own images, and none to itself. Points may be outside the cell. Searches run on the host.

    Args:
        pos: (N, D), floating point.
        r: the radius, more than 0; it may be larger than the cell.
        cell: (D, D), whose rows are the vectors of the cell, or (batches, D, D); None for no images.
        pbc: along which of them there are images: a bool, (D,) or (batches, D) bools; by default all. The vectors along
            the others are not looked at.
        batch: (N,) integers that ascend, the structure of each point; only points of one have edges.
        max_num_neighbors: keep the nearest of each destination, in this order; None keeps all.

    Raises ValueError for points that are not finite, shapes that do not fit, a batch that does not ascend, and vectors
    of a cell that are in one plane.
    """
    if pos.dim() != 2 or not pos.is_floating_point():
        raise ValueError(f"radius_graph: pos must be (N, D) floating point, got {tuple(pos.shape)} {pos.dtype}")
    if not 0 < r < float("inf"):
        raise ValueError(f"radius_graph: r must be above 0 and finite, got {r}")
    x = checked_points("pos", pos).double()
    clouds = 1 if batch is None or not batch.numel() else int(batch.max()) + 1
    if cell is not None and cell.dim() == 3:
        clouds = max(clouds, cell.shape[0])
    lattice = _lattice(cell, pbc, clouds, x.shape[1], r)
    cloud = Cloud(x, begins_of("batch", batch, x.shape[0], clouds))
    row, source, shifts = _edges(cloud, lattice, float(r))
    vectors = x[row] - x[source] + _times(shifts.double(), lattice.cell, cloud.numbers()[row])
    squares = vectors.square().sum(1)
    kept = (squares < r * r) & ((row != source) | (shifts != 0).any(1))
    if max_num_neighbors is not None:
        kept = _nearest(row, squares.masked_fill(~kept, torch.inf), kept, max_num_neighbors)
    row, source, shifts, vectors = row[kept], source[kept], shifts[kept], vectors[kept]
    edges, shifts = torch.stack([source, row]).to(pos.device), shifts.to(pos.device)
    if torch.is_grad_enabled() and (pos.requires_grad or (cell is not None and cell.requires_grad)):
        given = pos.index_select(0, edges[1]) - pos.index_select(0, edges[0])
        if cell is not None:
            cells = cell.to(pos).expand(clouds, *cell.shape[-2:])
            given = given + _times(shifts.to(pos.dtype), cells, cloud.numbers()[row].to(pos.device))
        return RadiusGraph(edges, shifts, given)
    return RadiusGraph(edges, shifts, vectors.to(pos))


class _Lattice(NamedTuple):
    """What a structure repeats by. cell: (B, D, D), 0 along axes without images. basis: (B, D, D), where these have
    vectors at right angles to the others. inverse: of that. periodic: (B, D). reach: (B, D), the radius by the distance
    between opposite walls.
    """

    cell: Tensor
    basis: Tensor
    inverse: Tensor
    periodic: Tensor
    reach: Tensor


def _lattice(
    cell: Tensor | None, pbc: bool | Sequence[bool] | Tensor | None, clouds: int, d: int, r: float
) -> _Lattice:
    flags = torch.as_tensor((cell is not None) if pbc is None else pbc, dtype=torch.bool).cpu()
    if flags.shape not in ((), (d,), (clouds, d)):
        raise ValueError(f"radius_graph: pbc must be a bool, ({d},) or ({clouds}, {d}) bools, got {tuple(flags.shape)}")
    periodic = flags.expand(clouds, d)
    if cell is None:
        if bool(flags.any()):
            raise ValueError(f"radius_graph: pbc={pbc} wants a cell")
        cells = torch.zeros(clouds, d, d, dtype=torch.float64)
    else:
        if cell.shape not in ((d, d), (clouds, d, d)):
            raise ValueError(f"radius_graph: cell must be ({d}, {d}) or ({clouds}, {d}, {d}), got {tuple(cell.shape)}")
        cells = cell.detach().cpu().double().expand(clouds, d, d) * periodic[:, :, None]
    basis = cells.clone()
    for pattern in periodic.unique(dim=0):
        open_axes = d - int(pattern.sum())
        if not open_axes:
            continue
        of = (periodic == pattern).all(1)
        normal = torch.linalg.qr(cells[of][:, pattern].mT, mode="complete")[0][:, :, d - open_axes :].mT
        basis[of.nonzero(), (~pattern).nonzero()[:, 0]] = normal
    lengths = torch.linalg.vector_norm(basis, dim=2).prod(1)
    flat = ~(torch.linalg.det(basis).abs() > 1e-10 * lengths)
    if bool(flat.any()):
        raise ValueError(
            f"radius_graph: the vectors of a cell must span its periodic axes, got {cells[flat][0].tolist()}"
        )
    inverse = torch.linalg.inv(basis)
    reach = r * torch.linalg.vector_norm(inverse, dim=1)
    return _Lattice(cells, basis, inverse, periodic, reach * (1 + _SLACK) + 1e-12)


def _edges(cloud: Cloud, lattice: _Lattice, r: float) -> tuple[Tensor, Tensor, Tensor]:
    """(destinations, sources, shifts) of all points nearer than a radius that is a little larger."""
    x, of = cloud.points, cloud.numbers()
    within_cell = _times(x, lattice.inverse, of)
    cells = torch.where(lattice.periodic[of], within_cell.floor(), 0.0)
    points, images = _images(within_cell - cells, lattice.periodic[of], lattice.reach[of])
    home = x - _times(cells, lattice.basis, of)
    copies = home[points] + _times(images.double(), lattice.basis, of[points])
    begins = torch.zeros_like(cloud.begins)
    torch.cumsum(torch.bincount(of[points], minlength=cloud.count), 0, out=begins[1:])
    slack = _SLACK * r + 1e-14 * float(copies.abs().max()) if copies.numel() else 0.0
    row, found = within(
        Cloud(copies.contiguous(), begins), Cloud(home.contiguous(), cloud.begins), r + slack, MOST, False, 0
    )
    source = points[found]
    crossed = cells.long()
    return row, source, crossed[source] - images[found] - crossed[row]


def _images(places: Tensor, periodic: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """(points, images): all copies of points in cells that may be near to the first one, and (copies, D) which cell.

    places: (N, D) in units of the cell, from 0 to 1 along periodic axes.
    """
    points = torch.arange(places.shape[0])
    images = torch.zeros(places.shape, dtype=torch.int64)
    for axis in range(places.shape[1]):
        if not bool(periodic[:, axis].any()):
            continue
        place, far = places[points, axis], reach[points, axis]
        low = torch.where(periodic[points, axis], (-far - place).ceil(), 0.0).long()
        high = torch.where(periodic[points, axis], (1 + far - place).floor(), 0.0).long()
        counts = high - low + 1
        if (total := int(counts.sum())) >= MOST:
            raise ValueError(f"radius_graph: the radius is too large for the cell: it reaches {total} images of points")
        begins = counts.cumsum(0) - counts
        by = torch.arange(points.shape[0]).repeat_interleave(counts)
        points, images = points[by], images[by]
        images[:, axis] = low[by] + torch.arange(total) - begins[by]
    return points, images


def _nearest(row: Tensor, squares: Tensor, kept: Tensor, most: int) -> Tensor:
    """The edges that are kept, at most that many of each destination, the nearest first."""
    order = squares.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    ranked = row[order]
    rank = torch.arange(ranked.numel()) - torch.searchsorted(ranked, ranked)
    return order[kept[order] & (rank < most)]


def _times(x: Tensor, matrices: Tensor, of: Tensor) -> Tensor:
    """(N, D) rows by the matrix (B, D, D) of each."""
    return x @ matrices[0] if matrices.shape[0] == 1 else torch.einsum("nd,nde->ne", x, matrices[of])
