"""The boundary to the kernels of relational products and their gradients on a GPU: forward only, operands already
validated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...formats.partitions.relational_tiles import RowTiles
from ...runtime.layout import ByLayout, compact, matrices
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import type_name
from ...structures.derived import Derived
from ...structures.graph import Graph
from ..core.ran import Launch
from ..grouped.executables import ProductOnGpu
from ..grouped.outer_sums_cuda import OuterSums
from ..message.bound_aggregate import BoundAggregate
from ..message.calls import run_aggregate
from ..message.message_op import SUM_OF_COLUMNS, WEIGHTED_SUM_OF_COLUMNS
from .orders_cuda import TilesOfRows, spec_of, tiles_of
from .programs.rgms_row_dots import RgmsDotsSpec
from .programs.rgms_rows import RgmsRowsSpec
from .programs.rgms_tiles import RgmsTilesSpec
from .schedules_cuda import (
    EDGES_OF_PAIR,
    ROWS,
    dots_kernel,
    dots_spec,
    panel_rows,
    rows_kernel,
    sum_tiles_kernel,
    tiles_kernel,
)

_entries = shared("kernels of relational products on a GPU")


class RowProducts:
    """Products of one shape and type on a side, by blocks that own rows of the result: the kernel, and its arguments
    but for the operands.
    """

    def __init__(
        self,
        rel,
        transposed: bool,
        blocks: int,
        in_features: int,
        out_features: int,
        dtype: torch.dtype,
        weighted: bool,
        arch: str,
    ):
        side = rel.side(transposed)
        found = spec_of(side, in_features, out_features, type_name(dtype), arch, not on_tensor_cores(dtype), blocks)
        if found is None:
            raise ValueError(
                f"no block on {arch} owns rows of {side.sizes[0]} for matrices of {in_features} x {out_features} in "
                f"{dtype}"
            )
        tiles, owned = _tiles_of(side, found)
        _, columns, relations = side.sizes
        self.dtype = torch.float32 if tiles.long_rows.numel() else dtype
        spec = replace(
            found, weighted=weighted, out_dtype=type_name(self.dtype), index_dtype=type_name(tiles.row.dtype)
        )
        self.entries = ByLayout(
            lambda by_columns: Launch(rows_kernel(replace(spec, by_columns=by_columns), arch), f"rows on {arch}")
        )
        self.arguments = (*_sizes(tiles, columns, relations), tiles.row.numel(), *owned, tiles.present)
        self.tiles, self.of_x, self.shape = (
            tiles,
            (columns, blocks, in_features),
            (tiles.row.numel(), blocks, out_features),
        )
        self.parts = None
        if tiles.long_rows.numel():
            self.parts = side.derived(PartsOfLongRows(tiles_of(found)))

    def __call__(self, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
        """(rows, blocks * F_out): for each row the sum over its edges of weight[e] * x[j(e)] times the matrix of e's
        relation.

        w: (relations, blocks, F_in, F_out). weight: (E,) float32 in the user's edge order. Parts of long rows are added
        up afterwards, in float32.
        """
        tiles = self.tiles
        w, by_columns = matrices(w)
        out = torch.empty(self.shape, dtype=self.dtype, device=x.device)
        at_edges = () if weight is None else (weight.index_select(0, tiles.edge_ids),)
        self.entries[by_columns](*self.arguments, *at_edges, tiles.row, compact(x).view(self.of_x), w, out)
        out = out.flatten(1)
        if self.parts is None:
            return out
        out.index_copy_(0, tiles.long_rows.long(), run_aggregate(SUM_OF_COLUMNS, self.parts, [out]))
        return out[: tiles.num_rows].to(x.dtype)


def run_row_dots(side, g: Tensor, w: Tensor, x: Tensor, arch: str) -> Tensor:
    """(edges,) float32, in the user's edge order: for each edge the product of its row of g by its relation's matrix,
    times x[j(e)].

    g, x: (rows, blocks * F_in), (columns, blocks * F_out) of the side. w: (relations, blocks, F_in, F_out).
    """
    relations, blocks, in_features, out_features = w.shape
    full = not on_tensor_cores(x.dtype)
    found = spec_of(side, in_features, out_features, type_name(x.dtype), arch, full, blocks, dots_spec)
    tiles, owned = _tiles_of(side, found)
    w, by_columns = matrices(w)
    key = ("dots", in_features, out_features, found.rows, blocks, x.dtype, tiles.row.dtype, by_columns, arch, full)
    entry = _entries.get(key)
    if entry is None:
        spec = replace(found, index_dtype=type_name(tiles.row.dtype), by_columns=by_columns)
        entry = _entries.keep(key, Launch(dots_kernel(spec, arch), f"rows on {arch}"))
    row = side.derived(OwnersOfRows(tiles_of(found)))
    g, x = compact(g), compact(x)
    out = torch.empty((tiles.edge_ids.numel(), 1), dtype=torch.float32, device=x.device)
    entry(
        *_sizes(tiles, x.shape[0], relations),
        row.numel(),
        g.shape[0],
        out.shape[0],
        *owned,
        tiles.edge_ids,
        row,
        g.view(-1, blocks, in_features),
        x,
        w,
        out,
    )
    return out.flatten()


def _tiles_of(side, spec: RgmsRowsSpec | RgmsDotsSpec) -> tuple[RowTiles, tuple[Tensor, ...]]:
    """The tiles that blocks of such a shape own, and their arrays as programs begin with them
    (``programs.owned_rows``).
    """
    fact = tiles_of(spec)
    tiles, owned_ptr = side.derived(fact), side.derived(OwnedShares(fact))
    return tiles, (
        tiles.panel_ptr,
        owned_ptr,
        tiles.share_ptr,
        tiles.indices,
        tiles.row_ptr[:-1],
        tiles.row_ptr[1:],
        tiles.relation,
        tiles.place,
    )


@dataclass(frozen=True)
class OwnedShares(Derived[Tensor]):
    """(panels + 1,) the first share of each panel of tiles."""

    tiles: TilesOfRows

    def compute(self, side) -> Tensor:
        tiles = side.derived(self.tiles)
        last = tiles.panels * tiles.shares + 1
        return torch.arange(0, last, tiles.shares, dtype=tiles.row.dtype, device=tiles.row.device)


@dataclass(frozen=True)
class PartsOfLongRows(Derived[Graph]):
    """Which rows of tiles are the parts of each long row."""

    tiles: TilesOfRows

    def compute(self, side) -> Graph:
        tiles = side.derived(self.tiles)
        shape = tiles.long_rows.numel(), tiles.row.numel()
        return Graph.from_csr(tiles.part_ptr, tiles.part, shape, trusted=True)


@dataclass(frozen=True)
class OwnersOfRows(Derived[Tensor]):
    """`_owners` of tiles."""

    tiles: TilesOfRows

    def compute(self, side) -> Tensor:
        return _owners(side.derived(self.tiles))


@dataclass(frozen=True)
class PanelsOfPairs(Derived[tuple]):
    """(first pair of each panel and the end, pairs of each, relation of each) of panels of so many pairs."""

    rows: int

    def compute(self, side) -> tuple[Tensor, Tensor, Tensor]:
        pairs, (_, _, _, start, stop, relation) = side.pairs, side.segments.panels_apart(self.rows)
        index = pairs.indptr.dtype
        ends = torch.cat([start, start.new_full((1,), pairs.count)]).to(index)
        return ends, (stop - start).to(index), relation.to(index)


@dataclass(frozen=True)
class PairChunks(Derived[Tensor]):
    """(chunks + 1,) where chunks of pairs begin, and the end."""

    chunk: int
    longest: int

    def compute(self, side) -> Tensor:
        tasks = side.segments.outer_tasks(self.chunk, self.longest)
        return torch.cat([tasks.start, tasks.stop[-1:]])


def _sizes(tiles: RowTiles, columns: int, relations: int) -> tuple[int, ...]:
    return tiles.tiles, tiles.panels, tiles.panels * tiles.shares, tiles.indices.numel(), columns, relations


def _owners(tiles: RowTiles) -> Tensor:
    """The structure's row at each place of ``tiles.row``: a part's is the row that it is cut from."""
    owner = torch.arange(tiles.row.numel(), dtype=tiles.row.dtype, device=tiles.row.device)
    if tiles.part.numel():
        owner[tiles.part.long()] = torch.repeat_interleave(
            tiles.long_rows, tiles.part_ptr.diff().long(), output_size=tiles.part.numel()
        )
    return owner.index_select(0, tiles.row)


class PairProducts:
    """The same, of panels of pairs of a relation, whose products are stored and added up by rows."""

    def __init__(
        self,
        rel,
        transposed: bool,
        blocks: int,
        in_features: int,
        out_features: int,
        dtype: torch.dtype,
        weighted: bool,
        arch: str,
    ):
        side = rel.side(transposed)
        pairs, rows = side.pairs, panel_rows(in_features, out_features, type_name(dtype), arch, blocks)
        panels, index = side.segments.panels_apart(rows)[1], pairs.indptr.dtype
        pair_ptr, count, relation = side.derived(PanelsOfPairs(rows))
        _, columns, relations = side.sizes
        spec = RgmsTilesSpec(
            in_features, out_features, rows // ROWS, weighted, blocks, type_name(dtype), type_name(index)
        )
        self.entries = ByLayout(
            lambda by_columns: Launch(tiles_kernel(replace(spec, by_columns=by_columns), arch), f"tiles on {arch}")
        )
        self.arguments = (
            panels,
            pairs.count,
            columns,
            pairs.indices.numel(),
            relations,
            pair_ptr,
            pairs.indptr,
            pairs.indices,
            count,
            relation,
        )
        self.edge_ids, self.shape, self.added_up = (
            pairs.edge_ids,
            (pairs.count, blocks, out_features),
            BoundAggregate(SUM_OF_COLUMNS, side.pairs_of_rows),
        )

    def __call__(self, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
        w, by_columns = matrices(w)
        out = torch.empty(self.shape, dtype=x.dtype, device=x.device)
        at_edges = () if weight is None else (weight.index_select(0, self.edge_ids),)
        self.entries[by_columns](*self.arguments, *at_edges, compact(x), w, out)
        return self.added_up(out.flatten(1))


class ColumnProducts:
    """The same, of the rows of X of all column pairs, whose products are stored and gathered over the edges."""

    def __init__(
        self,
        rel,
        transposed: bool,
        blocks: int,
        in_features: int,
        out_features: int,
        dtype: torch.dtype,
        weighted: bool,
        arch: str,
    ):
        segments, self.rows = rel.side(not transposed).blocks(blocks)
        self.multiply = ProductOnGpu(segments, in_features, out_features, dtype, self.rows.dtype, arch)
        self.added_up = BoundAggregate(
            WEIGHTED_SUM_OF_COLUMNS if weighted else SUM_OF_COLUMNS, rel.pairs_of_edges(transposed)
        )
        self.in_features, self.out_features = in_features, blocks * out_features

    def __call__(self, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
        products = self.multiply(x.reshape(-1, self.in_features), w.flatten(0, 1), self.rows).view(
            -1, self.out_features
        )
        return self.added_up(products) if weight is None else self.added_up(products, compact(weight).unsqueeze(1))


PRODUCTS = {"rows": RowProducts, "tiles": PairProducts, "transform": ColumnProducts}
"""By the orders of ``ops.relational.schedules_cuda``."""


def run_pair_sums(side, x: Tensor, g: Tensor, blocks: int, weight: Tensor | None, arch: str) -> Tensor:
    """(relations, blocks, F_in, F_out) float32: for each relation the blocks on the diagonal of the sum over its pairs
    of the outer product of the sum of weight[e] * x[j(e)] over the edges of the pair, and the row of g of the pair. x
    and g have blocks * F_in and blocks * F_out features; weight: (E,) float32, by edge."""
    pairs = side.pairs
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    sums = OuterSums(side.segments, in_features, out_features, x.dtype, EDGES_OF_PAIR, blocks)
    tasks = sums.tasks
    pair_ptr = side.derived(PairChunks(*sums.key))
    types = type_name(x.dtype), type_name(pairs.indptr.dtype)
    key = ("sum", in_features, out_features, weight is not None, *types, arch, blocks, sums.full)
    entry = _entries.get(key)
    if entry is None:
        entry = _entries.keep(key, Launch(sum_tiles_kernel(*key[1:]), f"tiles on {arch}"))
    x, g = compact(x).view(-1, blocks, in_features), compact(g).view(-1, blocks, out_features)
    out = sums.results(x.device)
    at_edges = () if weight is None else (weight.index_select(0, pairs.edge_ids).contiguous(),)
    entry(
        tasks.tasks,
        tasks.chunks,
        tasks.tasks,
        pairs.count,
        x.shape[0],
        pairs.indices.numel(),
        g.shape[0],
        tasks.task_ptr,
        pair_ptr,
        pairs.indptr,
        pairs.indices,
        tasks.slot,
        tasks.start,
        tasks.stop,
        pairs.row,
        *at_edges,
        x,
        g,
        out.view(-1, blocks, in_features, out_features),
    )
    return sums.total(out).view(-1, blocks, in_features, out_features)
