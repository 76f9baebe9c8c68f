"""The boundary to the kernels of relational products and their gradients on a GPU: forward only, operands already
validated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...compiler.cache.kernel import Kernel
from ...formats.partitions.relational_tiles import RowTiles
from ...planner.cuda.tensor_cores import ROWS
from ...runtime.layout import ByLayout, compact, matrices
from ...runtime.type_names import type_name
from ...structures.derived import fact
from ...structures.graph import Graph
from ..core.executable import Launch
from ..grouped.executables import Product
from ..grouped.outer_sums_cuda import OuterSums
from ..grouped.schedules_cuda import tiles
from ..message.calls import run_aggregate
from ..message.message_op import SUM_OF_COLUMNS, WEIGHTED_SUM_OF_COLUMNS
from ..message.prepared_call import PreparedAggregate
from .orders_cuda import TilesOfRows, shape_of, spec_of, tiles_of
from .programs.rgms_row_dots import RgmsDotsSpec
from .programs.rgms_rows import RgmsRowsSpec
from .programs.rgms_tiles import RgmsTilesSpec
from .schedules_cuda import EDGES_OF_PAIR, sum_tiles_kernel, tiles_kernel
from .schedules_cuda_rows import ProductShape, dots_kernel, dots_spec, rows_kernel

_entries = shared("kernels of relational products on a GPU")


def _by_layout(make: Callable[..., Kernel], spec, arch: str, words: str) -> ByLayout:
    """What runs a program of matrices by rows, and one of matrices by columns."""
    return ByLayout(lambda by_columns: Launch(make(replace(spec, by_columns=by_columns), arch), f"{words} on {arch}"))


class RowProducts:
    """Products of one shape and type on a side, by blocks that own rows of the result: the kernel, and its arguments
    but for the operands.
    """

    def __init__(self, rel, transposed: bool, of: ProductShape, weighted: bool):
        side = rel.side(transposed)
        found = spec_of(side, of)
        if found is None:
            raise ValueError(
                f"no block on {of.arch} owns rows of {side.sizes[0]} for matrices of {of.in_features} x "
                f"{of.out_features} in {of.dtype}"
            )
        tiles, owned = _tiles_of(side, found)
        _, columns, relations = side.sizes
        out_dtype = "float32" if tiles.long_rows.numel() else of.dtype
        self.dtype = getattr(torch, out_dtype)
        spec = replace(found, weighted=weighted, out_dtype=out_dtype, index_dtype=type_name(tiles.row.dtype))
        self.entries = _by_layout(rows_kernel, spec, of.arch, "rows")
        self.arguments = (*_sizes(tiles, columns, relations), tiles.row.numel(), *owned, tiles.present)
        self.tiles, self.of_x = tiles, (columns, of.blocks, of.in_features)
        self.shape = tiles.row.numel(), of.blocks, of.out_features
        self.parts = None
        if tiles.long_rows.numel():
            self.parts = parts_of_long_rows(side, tiles_of(found))

    def __call__(self, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
        """(rows, blocks * F_out): for each row the sum over its edges of weight[e] * x[j(e)] times the matrix of e's
        relation.

        w: (relations, blocks, F_in, F_out). weight: (E,) float32 in the user's edge order. Parts of long rows are added
        up afterwards, in float32.
        """
        tiles = self.tiles
        w, by_columns = matrices(w)
        rows, blocks, out_features = self.shape
        # no view is given back: layers write into results, which autograd forbids of views
        out = torch.empty(rows, blocks * out_features, dtype=self.dtype, device=x.device)
        at_edges = () if weight is None else (weight.index_select(0, tiles.edge_ids),)
        given = compact(x).view(self.of_x), w, out.view(self.shape)
        self.entries[by_columns](*self.arguments, *at_edges, tiles.row, *given)
        if self.parts is None:
            return out
        out.index_copy_(0, tiles.long_rows.long(), run_aggregate(SUM_OF_COLUMNS, self.parts, [out]))
        return out.resize_(tiles.num_rows, out.shape[1]).to(x.dtype)


def run_row_dots(side, g: Tensor, w: Tensor, x: Tensor, arch: str) -> Tensor:
    """(edges,) float32, in the user's edge order: for each edge the product of its row of g by its relation's matrix,
    times x[j(e)].

    g, x: (rows, blocks * F_in), (columns, blocks * F_out) of the side. w: (relations, blocks, F_in, F_out).
    """
    relations, blocks, in_features, out_features = w.shape
    of = shape_of(blocks, in_features, out_features, x.dtype, arch)
    found = spec_of(side, of, dots_spec)
    tiles, owned = _tiles_of(side, found)
    w, by_columns = matrices(w)
    key = ("dots", of, found.rows, tiles.row.dtype, by_columns)
    entry = _entries.get(key)
    if entry is None:
        spec = replace(found, index_dtype=type_name(tiles.row.dtype), by_columns=by_columns)
        entry = _entries.keep(key, Launch(dots_kernel(spec, arch), f"rows on {arch}"))
    row = owners_of_rows(side, tiles_of(found))
    g, x = compact(g), compact(x)
    out = torch.empty((tiles.edge_ids.numel(), 1), dtype=torch.float32, device=x.device)
    sizes = *_sizes(tiles, x.shape[0], relations), row.numel(), g.shape[0], out.shape[0]
    entry(*sizes, *owned, tiles.edge_ids, row, g.view(-1, blocks, in_features), x, w, out)
    return out.flatten()


def _tiles_of(side, spec: RgmsRowsSpec | RgmsDotsSpec) -> tuple[RowTiles, tuple[Tensor, ...]]:
    """The tiles that blocks of such a shape own, and their arrays as programs begin with them
    (``programs.owned_rows``).
    """
    planned = tiles_of(spec)
    tiles, owned_ptr = side.derived(planned), owned_shares(side, planned)
    edges = tiles.panel_ptr, owned_ptr, tiles.share_ptr, tiles.indices
    return tiles, (*edges, tiles.row_ptr[:-1], tiles.row_ptr[1:], tiles.relation, tiles.place)


@fact
def owned_shares(side, planned: TilesOfRows) -> Tensor:
    """(panels + 1,) the first share of each panel of tiles."""
    tiles = side.derived(planned)
    last = tiles.panels * tiles.shares + 1
    return torch.arange(0, last, tiles.shares, dtype=tiles.row.dtype, device=tiles.row.device)


@fact
def parts_of_long_rows(side, planned: TilesOfRows) -> Graph:
    """Which rows of tiles are the parts of each long row."""
    tiles = side.derived(planned)
    shape = tiles.long_rows.numel(), tiles.row.numel()
    return Graph.from_csr(tiles.part_ptr, tiles.part, shape, trusted=True)


@fact
def owners_of_rows(side, planned: TilesOfRows) -> Tensor:
    """The structure's row at each place of ``row`` of tiles: a part's is the row that it is cut from."""
    tiles = side.derived(planned)
    owner = torch.arange(tiles.row.numel(), dtype=tiles.row.dtype, device=tiles.row.device)
    if tiles.part.numel():
        owner[tiles.part.long()] = torch.repeat_interleave(
            tiles.long_rows, tiles.part_ptr.diff().long(), output_size=tiles.part.numel()
        )
    return owner.index_select(0, tiles.row)


@fact
def panels_of_pairs(side, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """(first pair of each panel and the end, pairs of each, relation of each) of panels of up to ``rows`` pairs."""
    pairs, (_, _, _, start, stop, relation) = side.pairs, side.segments.panels_apart(rows)
    index = pairs.indptr.dtype
    ends = torch.cat([start, start.new_full((1,), pairs.count)]).to(index)
    return ends, (stop - start).to(index), relation.to(index)


@fact
def pair_chunks(side, chunk: int, longest: int) -> Tensor:
    """(chunks + 1,) where chunks of pairs begin, and the end."""
    tasks = side.segments.outer_tasks(chunk, longest)
    return torch.cat([tasks.start, tasks.stop[-1:]])


def _sizes(tiles: RowTiles, columns: int, relations: int) -> tuple[int, ...]:
    return tiles.tiles, tiles.panels, tiles.panels * tiles.shares, tiles.indices.numel(), columns, relations


class PairProducts:
    """Products of one shape and type by panels of pairs of a relation, which are stored and added up by rows."""

    def __init__(self, rel, transposed: bool, of: ProductShape, weighted: bool):
        side = rel.side(transposed)
        pairs, rows = side.pairs, ROWS * tiles(*of[:5])
        panels, index = side.segments.panels_apart(rows)[1], pairs.indptr.dtype
        pair_ptr, count, relation = panels_of_pairs(side, rows)
        _, columns, relations = side.sizes
        widths = of.in_features, of.out_features
        spec = RgmsTilesSpec(*widths, rows // ROWS, weighted, of.blocks, of.dtype, type_name(index))
        self.entries = _by_layout(tiles_kernel, spec, of.arch, "tiles")
        sizes = panels, pairs.count, columns, pairs.indices.numel(), relations
        self.arguments = (*sizes, pair_ptr, pairs.indptr, pairs.indices, count, relation)
        self.edge_ids, self.shape = pairs.edge_ids, (pairs.count, of.blocks, of.out_features)
        self.rows, self.added_up = side.pairs_of_rows, PreparedAggregate(SUM_OF_COLUMNS)

    def __call__(self, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
        w, by_columns = matrices(w)
        out = torch.empty(self.shape, dtype=x.dtype, device=x.device)
        at_edges = () if weight is None else (weight.index_select(0, self.edge_ids),)
        self.entries[by_columns](*self.arguments, *at_edges, compact(x), w, out)
        return self.added_up(self.rows, (out.flatten(1),))


class ColumnProducts:
    """Products of one shape and type for all column pairs, which are stored and gathered over the edges."""

    def __init__(self, rel, transposed: bool, of: ProductShape, weighted: bool):
        segments, self.rows = rel.side(not transposed).blocks(of.blocks)
        widths, dtype = (of.in_features, of.out_features), getattr(torch, of.dtype)
        self.multiply = Product(segments, widths, dtype, self.rows.dtype, of.arch)
        self.edges = rel.pairs_of_edges(transposed)
        self.added_up = PreparedAggregate(WEIGHTED_SUM_OF_COLUMNS if weighted else SUM_OF_COLUMNS)
        self.in_features, self.out_features = of.in_features, of.blocks * of.out_features

    def __call__(self, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
        products = self.multiply(x.reshape(-1, self.in_features), w.flatten(0, 1), self.rows)
        products = products.view(-1, self.out_features)
        given = (products,) if weight is None else (products, compact(weight).unsqueeze(1))
        return self.added_up(self.edges, given)


PRODUCTS = {"rows": RowProducts, "tiles": PairProducts, "transform": ColumnProducts}
"""Products by the orders of ``ops.relational.schedules_cuda``."""


def run_pair_sums(side, x: Tensor, g: Tensor, blocks: int, weight: Tensor | None, arch: str) -> Tensor:
    """(relations, blocks, F_in, F_out) float32: for each relation the blocks on the diagonal of the sum over its pairs
    of the outer product of the sum of weight[e] * x[j(e)] over the edges of the pair, and the row of g of the pair. x
    and g have blocks * F_in and blocks * F_out features; weight: (E,) float32, by edge."""
    pairs = side.pairs
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    sums = OuterSums(side.segments, in_features, out_features, x.dtype, EDGES_OF_PAIR, blocks)
    tasks = sums.tasks
    pair_ptr = pair_chunks(side, *sums.key)
    of = shape_of(blocks, in_features, out_features, x.dtype, arch)
    key = ("sum", of, weight is not None, type_name(pairs.indptr.dtype))
    entry = _entries.get(key)
    if entry is None:
        entry = _entries.keep(key, Launch(sum_tiles_kernel(*key[1:]), f"tiles on {arch}"))
    x, g = compact(x).view(-1, blocks, in_features), compact(g).view(-1, blocks, out_features)
    out = sums.results(x.device)
    at_edges = () if weight is None else (weight.index_select(0, pairs.edge_ids).contiguous(),)
    sizes = *sums.sizes, pairs.count, x.shape[0], pairs.indices.numel(), g.shape[0]
    edges = tasks.task_ptr, pair_ptr, pairs.indptr, pairs.indices
    results = out.view(-1, blocks, in_features, out_features)
    entry(*sizes, *edges, tasks.slot, tasks.start, tasks.stop, pairs.row, *at_edges, x, g, results)
    return sums.total(side.segments, out).view(-1, blocks, in_features, out_features)
