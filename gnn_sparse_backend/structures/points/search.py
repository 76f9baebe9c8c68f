"""Which points are near others, and which are far from each other: kernels over cells, and SciPy's trees where points
crowd in few cells.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...compiler.compile import compile_loops
from ...compiler.loops.cells import LANES
from ...compiler.loops.farthest import farthest_function
from ...compiler.loops.near import FLAT, STEP, columns_of, nearest_function, within_function
from ...compiler.loops.search import TURN
from ...runtime.type_names import type_name
from ..derived import untransformed
from .cells import Cells, cells_of
from .clouds import Cloud

CROWDED = 512.0
"""Points in the cell of a point, in the mean, from which on a tree is searched: it follows clusters as no grid does."""
FEW = 2048
"""Points up to which that does not count: all are looked at at once."""


def nearest(points: Cloud, queries: Cloud, k: int, limit: float = torch.inf) -> Tensor:
    """(2, E) queries and the k nearest points of each within its cloud, or all there are, whose squared distance is
    below ``limit``: ordered by query, nearest first, equally near ones by number (which a tree does not promise).
    """
    return untransformed(_nearest, points, queries, k, limit)


def within(points: Cloud, queries: Cloud, radius: float, most: int, same: bool, stream: int) -> Tensor:
    """(2, E) queries and the points whose distance to each is below a radius, ordered by query; ``most`` of them,
    drawn, where there are more.

    same: leave out the point that has the query's number. stream: what random numbers begin with.
    """
    return untransformed(_within, points, queries, radius, most, same, stream)


def farthest(points: Cloud, first: Tensor, counts: Tensor) -> Tensor:
    """(sum of counts,) int64 points of each cloud: the first one, and then again and again the one that is furthest
    from all before it. first: (clouds,); counts: (clouds,), 0 of empty clouds.
    """
    x = points.points
    places = torch.zeros(points.count + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=places[1:])
    found = torch.empty(int(places[-1]), dtype=torch.int64)
    distances = torch.empty(x.shape[0], dtype=x.dtype)
    sizes = points.count, x.shape[0], x.shape[1], found.shape[0]
    compile_loops(farthest_function, type_name(x.dtype)).entry(
        *sizes, x.t().contiguous().view(-1), points.begins, places, first, distances, found
    )
    return found


def _nearest(points: Cloud, queries: Cloud, k: int, limit: float) -> Tensor:
    x, count = points.points, queries.points.shape[0]
    k = min(k, int(points.begins.diff().max()) if points.count else 0)
    if k <= 0 or not count:
        return _empty()
    held = max(2.0, k / 6) if x.shape[1] <= FLAT else float(x.shape[0])
    cells = cells_of(points, held)
    if _crowded(points, cells):
        return _nearest_of_tree(points, queries, k, limit)
    chunks, room, name = _chunks(count), -(-k // STEP) * STEP, type_name(x.dtype)
    found, missing = torch.empty(2, count * k, dtype=torch.int64), torch.empty(chunks, dtype=torch.int64)
    lists = torch.empty(chunks * columns_of(name) * (room + 1), dtype=torch.float64)
    given = *cells.given(queries, chunks), k, float(limit), room
    compile_loops(nearest_function, cells.width, name).entry(*given, found.view(-1), missing, lists)
    return found[:, found[1] >= 0] if int(missing.sum()) else found


def _within(points: Cloud, queries: Cloud, radius: float, most: int, same: bool, stream: int) -> Tensor:
    x, count = points.points, queries.points.shape[0]
    if not x.shape[0] or not count or radius <= 0 or most <= 0:
        return _empty()
    cells = cells_of(points, 1.0, radius) if x.shape[1] <= FLAT else cells_of(points, float(x.shape[0]))
    chunks, name = _chunks(count), type_name(x.dtype)
    given = *cells.given(queries, chunks), float(radius), int(same)
    totals, pointers = torch.empty(count, dtype=torch.int64), torch.zeros(count + 1, dtype=torch.int64)
    compile_loops(within_function, cells.width, name, True).entry(*given, totals)
    torch.cumsum(totals.clamp(max=most), 0, out=pointers[1:])
    found, room = torch.empty(2, int(pointers[-1]), dtype=torch.int64), int(totals.max()) + LANES
    lists = torch.empty(chunks * room, dtype=torch.int32)
    sizes = found.shape[1], room, stream
    compile_loops(within_function, cells.width, name, False).entry(*given, *sizes, pointers, lists, found.view(-1))
    return found


def _chunks(queries: int) -> int:
    return min(torch.get_num_threads(), -(-queries // TURN))


def _crowded(points: Cloud, cells: Cells) -> bool:
    return points.points.shape[0] > FEW and points.points.shape[1] <= FLAT and cells.crowd > CROWDED


def _nearest_of_tree(points: Cloud, queries: Cloud, k: int, limit: float) -> Tensor:
    """Compute `nearest` by SciPy's tree, in which clouds are apart along one more axis."""
    from scipy.spatial import cKDTree

    x, y, clouds = points.points.double(), queries.points.double(), points.numbers()
    apart = 1 + 2 * float((torch.cat([x, y]).amax(0) - torch.cat([x, y]).amin(0)).sum())
    x, y = (torch.cat([z, apart * of.double()[:, None]], 1) for z, of in ((x, clouds), (y, queries.numbers())))
    tree = cKDTree(x.numpy())
    distances, found = tree.query(y.numpy(), k=np.arange(1, k + 1), workers=torch.get_num_threads())
    found, rows = torch.from_numpy(found).flatten(), torch.arange(y.shape[0]).repeat_interleave(k)
    near = torch.from_numpy(distances).flatten().square() < min(limit, apart**2 / 4)
    return torch.stack([rows[near], found[near]])


def _empty() -> Tensor:
    return torch.empty(2, 0, dtype=torch.int64)
