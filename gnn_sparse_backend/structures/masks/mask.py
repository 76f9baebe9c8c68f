"""``Mask``: which query may attend which key, in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ..derived import Keeper, fact
from ..graph import Graph
from ..immutable import Movable
from . import algebra
from .blocks import Blocks
from .padding import Padding


class Mask(Movable):
    """Which query may attend which key: made once, by a function of ``gsb.masks``, and shared by many calls.

    Pairs are in square blocks, and a block without any pair is not there. ``|`` and ``&`` of two masks allow the pairs
    of either and of both, ``mask & padding`` takes keys away sequence by sequence. Equal masks have equal arrays,
    whatever they were made by. The arrays belong to the mask and must not be written to.

    Masks hash and compare by identity; ``fingerprint`` compares content.

    Attributes:
        shape: (queries, keys).
        heads: how many masks it has; 1 where all heads share one.
        block: side of a block.
        indptr: (heads * block_rows + 1,) int32, where the blocks of each row of blocks begin, head after head.
        indices: (num_blocks,) int32, column of blocks of each block; they ascend within a row.
        tile: (num_blocks,) int32, the tile of each block, or -1 where every pair of it is allowed, which is never so
            in a block that reaches beyond the last query or key.
        tiles: (num_tiles, block, block) uint8, 1 where a query (row) may attend a key (column); no two are alike.
        padding: (batch, keys) bool, True where a key may be attended; None for all keys.
        assumed: whether nobody has said that its several masks are those of heads, and not of sequences.
        facts: what was derived from it (`derived`), shared by the masks that differ in their padding alone.
    """

    __slots__ = (
        "assumed",
        "block",
        "facts",
        "heads",
        "indices",
        "indptr",
        "padding",
        "shape",
        "tile",
        "tiles",
    )

    shape: tuple[int, int]
    heads: int
    block: int
    indptr: Tensor
    indices: Tensor
    tile: Tensor
    tiles: Tensor
    padding: Tensor | None
    facts: dict[Any, Any]
    assumed: bool

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("make a Mask with a function of gsb.masks: band, causal, blocks, from_dense, from_graph, ...")

    @classmethod
    def _make(
        cls,
        shape: tuple[int, int],
        heads: int,
        block: int,
        arrays: tuple[Tensor, Tensor, Tensor, Tensor],
        padding: Tensor | None = None,
        facts: dict[Any, Any] | None = None,
        assumed: bool = False,
    ) -> Mask:
        """Make a mask of (indptr, indices, tile, tiles) that are known to be right."""
        indptr, indices, tile, tiles = arrays
        return cls._new(
            indptr=indptr,
            indices=indices,
            tile=tile,
            tiles=tiles,
            shape=tuple(shape),
            heads=heads,
            block=block,
            padding=padding,
            facts={} if facts is None else facts,
            assumed=assumed,
        )._found_by(*arrays, padding, *shape, heads)

    @classmethod
    def _of_blocks(cls, blocks: Blocks, padding: Tensor | None = None, assumed: bool = False) -> Mask:
        """Make a mask of blocks that are in the one form for them (`settled`)."""
        with torch.inference_mode(False):  # made now, kept for a backward pass later
            counts = torch.bincount(blocks.lines, minlength=blocks.heads * blocks.grid[0])
            arrays = (
                prefix_sums(counts).int(),
                blocks.columns.int(),
                blocks.tile.int(),
                blocks.tiles.contiguous().clone(),
            )
        return cls._make(blocks.shape, blocks.heads, blocks.block, arrays, padding, assumed=assumed)

    @property
    def block_rows(self) -> int:
        """Rows of blocks of one head."""
        return -(-self.shape[0] // self.block)

    @property
    def block_columns(self) -> int:
        return -(-self.shape[1] // self.block)

    @property
    def num_blocks(self) -> int:
        """Number of blocks of all heads."""
        return self.indices.numel()

    @property
    def num_pairs(self) -> int:
        """Allowed pairs of all heads; padding is not counted."""
        return pair_count(self)

    @property
    def density(self) -> float:
        """The share of pairs that are allowed."""
        return self.num_pairs / max(self.heads * self.shape[0] * self.shape[1], 1)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays; ``gsb.memory(mask)`` has what was derived of them as well."""
        return sum(array.numel() * array.element_size() for array in self._arrays if array is not None)

    @property
    def device(self) -> torch.device:
        return self.indices.device

    @property
    def fingerprint(self) -> str:
        """32 hex digits that identify the pairs and the side of the blocks, whatever the mask was made by. Padding is
        not in it.
        """
        return fingerprint(self)

    def transposed(self) -> Mask:
        """The mask of keys by queries, made once. Padding is not in it."""
        return transposition(self)[0]

    @property
    def transposed_order(self) -> Tensor:
        """(num_blocks,) int32: of each block of ``transposed()`` which block of this mask it is."""
        return transposition(self)[1]

    def graph(self, head: int = 0) -> Graph:
        """The pairs of one head as the edges from keys to queries, row by row. Padding is not in it."""
        if isinstance(head, bool) or not isinstance(head, int):
            raise TypeError(f"graph: head must be an int, got {head!r}")
        if not 0 <= head < self.heads:
            raise IndexError(f"graph: head must be in [0, {self.heads}), got {head}")
        return graph_of(self, head)

    def to_dense(self) -> Tensor:
        """(heads, queries, keys) bool, True where a pair is allowed. Padding is not in it."""
        return algebra.dense(self._blocks()).to(self.device)

    def with_block(self, block: int) -> Mask:
        """Return a mask of the same pairs in blocks of another side."""
        check_side("with_block", block)
        if block == self.block:
            return self
        return Mask._of_blocks(algebra.with_side(self._blocks(), block), self.padding, self.assumed).to(self.device)

    def _parts(self) -> tuple[Any, ...]:
        return self.shape, self.heads, self.block, self._arrays[:4], self.padding, None, self.assumed

    def keepers(self) -> Iterator[Keeper]:
        yield Keeper("mask", self, self._arrays)

    def __and__(self, other: object) -> Mask:
        if isinstance(other, Padding):
            return self._padded(other)
        other = self._alike("&", other)
        both = [each for each in (self.padding, other.padding) if each is not None]
        if len(both) == 2:
            both = [(Padding(both[0]) & Padding(both[1].to(self.device))).allowed]
        return self._combined(other, torch.bitwise_and, both[0] if both else None)

    def __rand__(self, other: object) -> Mask:
        return self & other

    def __or__(self, other: object) -> Mask:
        if isinstance(other, Padding):
            raise TypeError(
                f"mask | padding: {other} takes keys away and cannot allow pairs; unite masks first, then `& padding`"
            )
        other = self._alike("|", other)
        return self._combined(other, torch.bitwise_or, shared_padding("mask | mask", [self, other]))

    def __ror__(self, other: object) -> Mask:
        return self | other

    def _combined(self, other: Mask, combine: Callable[[Tensor, Tensor], Tensor], padding: Tensor | None) -> Mask:
        blocks = algebra.combined(self._blocks(), other._blocks(), combine)
        return Mask._of_blocks(blocks, padding, self.assumed or other.assumed).to(self.device)

    def _padded(self, padding: Padding) -> Mask:
        if padding.allowed.shape[1] != self.shape[1]:
            raise ValueError(f"mask & padding: {self} has {self.shape[1]} keys, and {padding} another number")
        allowed = padding.allowed.to(self.device)
        if self.padding is not None:
            allowed = (Padding(self.padding) & Padding(allowed)).allowed
        return Mask._make(self.shape, self.heads, self.block, self._arrays[:4], allowed, self.facts, self.assumed)

    def _alike(self, sign: str, other: object) -> Mask:
        """``other``, a mask that can be united with this one."""
        if not isinstance(other, Mask):
            raise TypeError(
                f"mask {sign} {type(other).__name__}: expected a Mask, or behind & a Padding; "
                "gsb.masks.from_dense makes a mask of a bool matrix, and gsb.masks.padding a Padding of (batch, keys)"
            )
        if other.shape != self.shape:
            raise ValueError(f"mask {sign} mask: both must have as many queries and keys, got {self} and {other}")
        if other.heads != self.heads and 1 not in (self.heads, other.heads):
            raise ValueError(
                f"mask {sign} mask: both must have as many heads, or one of them one, got {self} and {other}"
            )
        return other

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self.indptr, self.indices, self.tile, self.tiles, self.padding

    def _blocks(self) -> Blocks:
        """The blocks as plain arrays of the CPU, in int64."""
        lines = torch.repeat_interleave(self.indptr.diff().long().cpu())
        columns, tile = self.indices.long().cpu(), self.tile.long().cpu()
        return Blocks(self.shape, self.heads, self.block, lines, columns, tile, self.tiles.cpu())

    def __repr__(self) -> str:
        padding = "" if self.padding is None else f", padding of {self.padding.shape[0]} sequences"
        return (
            f"Mask({self.shape[0]} queries, {self.shape[1]} keys, {self.heads} head{'s'[: self.heads != 1]}, "
            f"{self.num_blocks} blocks of {self.block}, {self.tiles.shape[0]} tiles{padding}, {self.device})"
        )


@fact
def transposition(mask: Mask) -> tuple[Mask, Tensor]:
    """(the mask of keys by queries, which block of ``mask`` each of its blocks is)."""
    blocks, order = algebra.transposed(mask._blocks())
    with torch.inference_mode(False):
        return Mask._of_blocks(blocks).to(mask.device), order.int().to(mask.device)


@fact
def graph_of(mask: Mask, head: int) -> Graph:
    """The pairs of one head as edges, row by row."""
    with torch.inference_mode(False):
        return Graph.from_coo(*algebra.pairs(mask._blocks(), head), mask.shape).to(mask.device)


@fact
def pair_count(mask: Mask) -> int:
    """Allowed pairs of all heads."""
    counts = torch.cat([mask.tiles.sum((1, 2)), mask.indptr.new_full((1,), mask.block**2).long()])
    return int(counts[mask.tile.long()].sum())


@fact
def fingerprint(mask: Mask) -> str:
    """BLAKE2b of all but the padding."""
    digest = hashlib.blake2b(repr((mask.shape, mask.heads, mask.block)).encode(), digest_size=16)
    for array in mask._arrays[:4]:
        digest.update(array.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def shared_padding(what: str, masks: list[Mask]) -> Tensor | None:
    """The one padding that masks have which become one."""
    first, *others = (mask.padding for mask in masks)
    for mask, padding in zip(masks[1:], others):
        if first is None and padding is None:
            continue
        if first is None or padding is None or not torch.equal(first, padding.to(first.device)):
            raise ValueError(
                f"{what}: {masks[0]} and {mask} have different padding; make the mask first, then `& padding`"
            )
    return first


LARGEST_SIDE = 1024


def check_side(what: str, block: object) -> None:
    """``block`` may be the side of a block."""
    if isinstance(block, bool) or not isinstance(block, int):
        raise TypeError(f"{what}: block must be an int, the side of a block, got {block!r}")
    if not 1 <= block <= LARGEST_SIDE:
        raise ValueError(f"{what}: block must be from 1 to {LARGEST_SIDE}, got {block}")
