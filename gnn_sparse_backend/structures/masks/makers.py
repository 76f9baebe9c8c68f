"""What makes masks. None of them builds more than blocks, tiles and their edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...formats.structure import row_of_position, runs_of
from ..checks import as_index_vector, check_range
from ..graph import Graph
from . import algebra
from .blocks import FULL, Blocks, check_blocks, distinct, no_tiles, settled
from .mask import Mask, check_side, shared_padding

Sizes: TypeAlias = int | tuple[int, int]
"""Tokens that attend each other, or (queries, keys)."""
SIDE = 64
_MOST_TOKENS = 2**27
_FARTHEST = 2**31 - 1


def band(
    n: Sizes,
    left: int | None,
    right: int | None,
    *,
    global_tokens: Sequence[int] | Tensor | None = None,
    block: int = SIDE,
) -> Mask:
    """Query i may attend the keys from ``i - left`` to ``i + right``: the sliding window of Longformer (Beltagy et al.,
    2020).

    Args:
        n: tokens that attend each other, or (queries, keys).
        left, right: how far a query sees; None for no limit, negative where even its own key is out of reach.
        global_tokens: positions of tokens that every query may attend, and that may attend every key.
        block: side of a block.

    Raises:
        TypeError, ValueError: an argument is not as above; it is quoted.
    """
    shape = _sizes("band", n, block)
    for name, reach in (("left", left), ("right", right)):
        if reach is not None and (isinstance(reach, bool) or not isinstance(reach, int)):
            raise TypeError(f"band: {name} must be an int, or None for no limit, got {reach!r}")
        if reach is not None and abs(reach) > _FARTHEST:
            raise ValueError(f"band: {name} must be at most {_FARTHEST}, or None for no limit, got {reach}")
    if left is not None and right is not None and left + right < 0:
        raise ValueError(f"band: no key is from i - left to i + right where left is {left} and right is {right}")

    def near(ahead: Tensor) -> Tensor:
        allowed = torch.ones_like(ahead, dtype=torch.bool)
        allowed = allowed if left is None else allowed & (ahead >= -left)
        return allowed if right is None else allowed & (ahead <= right)

    mask = _by_distance("band", shape, block, near)
    if global_tokens is None:
        return mask
    if not isinstance(global_tokens, Tensor):
        global_tokens = _integers("band", "global_tokens", global_tokens)
    tokens = as_index_vector("global_tokens", global_tokens).long().cpu()
    check_range("global_tokens", tokens, max(shape), "tokens")
    attend, attended = (tokens[tokens < size] for size in shape)
    return mask | _lines(shape, block, attend) | _lines(shape[::-1], block, attended).transposed()


def causal(n: Sizes, *, block: int = SIDE) -> Mask:
    """Query i may attend the keys up to i. Where the queries are the last of more keys, that is
    ``band((queries, keys), None, keys - queries)``.
    """
    return _by_distance("causal", _sizes("causal", n, block), block, lambda ahead: ahead <= 0)


def full(n: Sizes, *, block: int = SIDE) -> Mask:
    """Every query may attend every key: for one of several heads, or to be padded."""
    shape = _sizes("full", n, block)
    rows, columns = -(-shape[0] // block), -(-shape[1] // block)
    check_blocks(rows * columns, "full")
    # a decoder asks at every step, as keys are added: NumPy takes a tenth of PyTorch's time for so little
    edge = (np.arange(rows) >= shape[0] // block)[:, None] * 2 + (np.arange(columns) >= shape[1] // block)
    every, (of_row, of_column) = np.ones(block, bool), (np.arange(block) < size % block for size in shape)
    # tiles of the corner, of the last column and of the last row: in the order that a mask has them
    sides = {3: (of_row, of_column), 1: (every, of_column), 2: (of_row, every)}
    kinds = [kind for kind in sides if (edge == kind).any()]
    number = np.full(4, FULL, np.int32)
    number[kinds] = np.arange(len(kinds))
    tiles = np.array([np.outer(*sides[kind]) for kind in kinds], np.uint8).reshape(-1, block, block)
    indices, tile = np.tile(np.arange(columns, dtype=np.int32), rows), number[edge].reshape(-1)
    arrays = np.arange(rows + 1, dtype=np.int32) * columns, indices, tile, tiles
    with torch.inference_mode(False):  # made now, kept for a backward pass later
        indptr, *others = map(torch.from_numpy, arrays)
        return Mask._make(shape, 1, block, (indptr.int(), *others))


def strided(n: Sizes, stride: int, *, causal: bool = True, block: int = SIDE) -> Mask:
    """A query may attend the keys less than ``stride`` away, and every key a multiple of ``stride`` away: the strided
    pattern of Sparse Transformers (Child et al., 2019). causal: of these only those up to itself.
    """
    shape = _sizes("strided", n, block)
    if isinstance(stride, bool) or not isinstance(stride, int):
        raise TypeError(f"strided: stride must be an int, got {stride!r}")
    if not 1 <= stride <= _FARTHEST:
        raise ValueError(f"strided: stride must be from 1 to {_FARTHEST}, got {stride}")
    if not isinstance(causal, bool):
        raise TypeError(f"strided: causal must be True or False, got {causal!r}")

    def allowed(ahead: Tensor) -> Tensor:
        found = (ahead.abs() < stride) | (ahead % stride == 0)
        return found & (ahead <= 0) if causal else found

    return _by_distance("strided", shape, block, allowed)


def butterfly(n: Sizes, block: int = SIDE) -> Mask:
    """Block i may attend block j where they are the same, or differ in one binary digit: the flat block butterfly of
    Pixelated Butterfly (Dao et al., 2022), with ``log2`` of the number of blocks and one more in each row.

    With (queries, keys) the pattern of the shorter side is stretched over the longer one.
    """
    shape = _sizes("butterfly", n, block)
    rows, columns = (-(-size // block) for size in shape)
    square = max(min(rows, columns), 1)
    row = torch.arange(rows)
    place = row * square // max(rows, 1)
    steps = torch.tensor([0, *(1 << bit for bit in range((square - 1).bit_length()))])
    other = place[:, None] ^ steps
    begin, end = (-(-at.clamp(max=square) * columns // square) for at in (other, other + 1))
    lengths = (end - begin).view(-1)
    check_blocks(int(lengths.sum()), "butterfly")
    column = runs_of(begin.view(-1), lengths)[1]
    return _whole(shape, 1, block, row.repeat_interleave(len(steps)).repeat_interleave(lengths), column)


def blocks(matrix: Tensor, block: int = SIDE, *, shape: Sizes | None = None) -> Mask:
    """Whole blocks of pairs.

    Args:
        matrix: (rows, columns) or (heads, rows, columns) bool, True where queries may attend keys, block by
            block.
        block: side of a block.
        shape: tokens, or (queries, keys), where the last blocks are not whole; as many as the blocks hold by default.
    """
    matrix = _truth("blocks", "matrix", matrix, "(rows, columns) or (heads, rows, columns)")
    check_side("blocks", block)
    held = matrix.shape[1] * block, matrix.shape[2] * block
    sizes = held if shape is None else _sizes("blocks", shape, block, "shape")
    if tuple(-(-size // block) for size in sizes) != tuple(matrix.shape[1:]):
        raise ValueError(
            f"blocks: a matrix of {tuple(matrix.shape)} blocks of {block} holds {held} queries and keys, got shape "
            f"{shape}"
        )
    head, row, column = matrix.cpu().nonzero().unbind(1)
    return _whole(sizes, matrix.shape[0], block, head * matrix.shape[1] + row, column).to(matrix.device)


def from_dense(allowed: Tensor, *, block: int = SIDE, of: str | None = None) -> Mask:
    """Make a mask of a (queries, keys) or (heads, queries, keys) bool tensor, True where a pair is allowed.

    of: "heads", to say that a tensor of three dimensions has a mask for each head. Without, a call with as many
    sequences as heads refuses it: it may be (batch, queries, keys).
    """
    if of not in (None, "heads"):
        raise ValueError(
            f"from_dense: of must be 'heads' or None, got {of!r}; of one mask for each sequence, call the attention of "
            "each by itself, or take keys away by padding"
        )
    assumed = of is None and isinstance(allowed, Tensor) and allowed.dim() == 3
    allowed = _truth("from_dense", "allowed", allowed, "(queries, keys) or (heads, queries, keys)")
    check_side("from_dense", block)
    heads, queries, keys = allowed.shape
    rows, columns = -(-queries // block), -(-keys // block)
    cells = torch.zeros(heads, rows * block, columns * block, dtype=torch.uint8)
    cells[:, :queries, :keys] = allowed
    cells = cells.view(heads, rows, block, columns, block).transpose(2, 3)
    head, row, column = cells.amax((3, 4)).nonzero().unbind(1) if cells.numel() else torch.zeros(3, 0).long()
    tiles = cells[head, row, column]
    made = Blocks((queries, keys), heads, block, head * rows + row, column, torch.arange(len(head)), tiles)
    return Mask._of_blocks(settled(made), assumed=assumed).to(allowed.device)


def from_graph(graph: Graph, *, block: int = SIDE) -> Mask:
    """The edges of a graph as pairs: destinations are queries, sources keys. Edges that repeat are one pair.

    A tile is kept for every block that an edge is in: where these are many with few edges each, smaller blocks take
    less memory.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"from_graph: expected a gsb.Graph, got {type(graph).__name__}")
    if graph.device.type == "meta":
        raise ValueError(f"from_graph: {graph} has no values")
    check_side("from_graph", block)
    columns = max(-(-graph.shape[1] // block), 1)
    key = graph.indices.long().cpu()
    query = row_of_position(graph.indptr, graph.num_edges).long().cpu()
    found, tile = torch.unique(query // block * columns + key // block, return_inverse=True)
    tiles = torch.zeros(len(found), block, block, dtype=torch.uint8)
    tiles[tile, query % block, key % block] = 1
    made = Blocks(graph.shape, 1, block, found // columns, found % columns, torch.arange(len(found)), tiles)
    return Mask._of_blocks(settled(made)).to(graph.device)


def heads(masks: Sequence[Mask]) -> Mask:
    """One mask for several heads, of the masks of each."""
    if not isinstance(masks, (list, tuple)) or not masks or not all(isinstance(mask, Mask) for mask in masks):
        given = [type(mask).__name__ for mask in masks] if isinstance(masks, (list, tuple)) else type(masks).__name__
        raise TypeError(f"heads: expected a list of masks, one or more, got {given}")
    for mask in masks:
        if mask.shape != masks[0].shape:
            raise ValueError(f"heads: all masks must have as many queries and keys, got {masks[0]} and {mask}")
    padding = shared_padding("heads", list(masks))
    return Mask._of_blocks(algebra.stacked([mask._blocks() for mask in masks]), padding).to(masks[0].device)


def _by_distance(what: str, shape: tuple[int, int], block: int, rule: Callable[[Tensor], Tensor]) -> Mask:
    """The pairs of which ``rule`` says so by how far the key is ahead of its query. All blocks on one diagonal are
    alike, so it is asked once for each distance.
    """
    rows, columns = -(-shape[0] // block), -(-shape[1] // block)
    if not rows or not columns:
        return _whole(shape, 1, block, *torch.zeros(2, 0).long())
    allowed = rule(torch.arange(-(rows * block - 1), columns * block))
    windows = allowed.unfold(0, 2 * block - 1, block)  # of each diagonal of blocks
    diagonals = windows.any(1).nonzero().view(-1)
    first, tile = distinct(windows[diagonals])
    inside = torch.arange(block)
    tiles = windows[diagonals][first][:, inside - inside[:, None] + block - 1].byte()
    ahead = diagonals - (rows - 1)
    lengths = torch.minimum(columns - ahead, torch.tensor(rows)) - (-ahead).clamp(min=0)
    check_blocks(int(lengths.sum()), what)
    column = torch.arange(rows)[:, None] + ahead
    row, which = ((column >= 0) & (column < columns)).nonzero().unbind(1)
    made = Blocks(shape, 1, block, row, row + ahead[which], tile[which], tiles)
    return Mask._of_blocks(settled(made))


def _lines(shape: tuple[int, int], block: int, queries: Tensor) -> Mask:
    """These queries may attend every key."""
    columns = -(-shape[1] // block)
    rows, which = torch.unique(queries // block, return_inverse=True)
    check_blocks(len(rows) * columns, "global_tokens")
    tiles = torch.zeros(len(rows), block, block, dtype=torch.uint8)
    tiles[which, queries % block] = 1
    tile = torch.arange(len(rows)).repeat_interleave(columns)
    made = Blocks(shape, 1, block, rows[tile], torch.arange(columns).repeat(len(rows)), tile, tiles)
    return Mask._of_blocks(settled(made))


def _whole(shape: tuple[int, int], heads: int, block: int, lines: Tensor, columns: Tensor) -> Mask:
    """These blocks, with every pair of theirs."""
    made = Blocks(shape, heads, block, lines, columns, torch.full_like(lines, FULL), no_tiles(block))
    return Mask._of_blocks(settled(made))


def _sizes(what: str, n: object, block: object, name: str = "n") -> tuple[int, int]:
    """(queries, keys) of a number of tokens or of such a pair."""
    check_side(what, block)
    sizes = n if isinstance(n, (tuple, list)) else (n, n)
    if len(sizes) != 2 or any(isinstance(size, bool) or not isinstance(size, int) for size in sizes):
        raise TypeError(f"{what}: {name} must be a number of tokens, or a pair (queries, keys), got {n!r}")
    if not all(0 <= size < _MOST_TOKENS for size in sizes):
        raise ValueError(f"{what}: {name} must be from 0 to {_MOST_TOKENS - 1}, got {n!r}")
    return sizes[0], sizes[1]


def _integers(what: str, name: str, values: object) -> Tensor:
    if not isinstance(values, (list, tuple, range)) or not all(type(value) is int for value in values):
        raise TypeError(f"{what}: {name} must be a list or tensor of positions, got {values!r:.80}")
    if any(abs(value) > _FARTHEST for value in values):
        raise ValueError(f"{what}: {name} must be less than {_MOST_TOKENS}, got {values!r:.80}")
    return torch.tensor(list(values), dtype=torch.int64)


def _truth(what: str, name: str, values: object, shapes: str) -> Tensor:
    """``values`` as (heads, ., .) truth values."""
    if not isinstance(values, Tensor) or values.dtype != torch.bool:
        got = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{what}: {name} must be a bool tensor {shapes}, got {got}")
    if values.dim() not in (2, 3) or values.is_meta or values.layout is not torch.strided:
        raise ValueError(
            f"{what}: {name} must be a dense tensor {shapes}, got {tuple(values.shape)} with layout {values.layout} on "
            f"{values.device}"
        )
    return values.detach() if values.dim() == 3 else values.detach()[None]
