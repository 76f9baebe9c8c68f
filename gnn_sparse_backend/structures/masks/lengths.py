"""Masks of sequences of different lengths: packed one behind the other, or in the pages of one cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...formats.structure import runs_of
from ..checks import as_index_vector, check_count, check_range
from .block_masks import Planes
from .blocks import FULL, Blocks, check_blocks, settled
from .makers import SIDE
from .makers import causal as causal_mask
from .mask import Mask, check_side


def documents(lengths: Sequence[int] | Tensor, *, causal: bool = False, block: int = SIDE) -> Mask:
    """Sequences packed one behind the other: a token may attend those of its own.

    Args:
        lengths: (sequences,) how many tokens each has; some may have none.
        causal: of these only those up to itself.
        block: side of a block.

    Raises:
        TypeError, ValueError: an argument is not as above; it is quoted.
    """
    check_side("documents", block)
    if not isinstance(causal, bool):
        raise TypeError(f"documents: causal must be True or False, got {causal!r}")
    if not isinstance(lengths, Tensor):
        if not isinstance(lengths, (list, tuple, range)) or not all(type(each) is int for each in lengths):
            raise TypeError(f"documents: lengths must be a list or tensor of integers, got {lengths!r:.80}")
        lengths = torch.tensor(list(lengths), dtype=torch.int64)
    device = lengths.device
    lengths = as_index_vector("lengths", lengths).long().cpu()
    check_range("lengths", lengths, 2**27, "tokens")
    ends = lengths.cumsum(0)
    n = int(lengths.sum())
    check_count("the sum of lengths", n)
    own = torch.repeat_interleave(lengths)
    first_row = torch.arange(0, n, block)
    last_row = (first_row + block).clamp(max=n) - 1
    begin = (ends - lengths)[own[first_row]] // block
    end = (ends[own[last_row]] + (block - 1)) // block
    check_blocks(int((end - begin).sum()), "documents")
    row = torch.arange(len(first_row)).repeat_interleave(end - begin)
    column = runs_of(begin, end - begin)[1]
    # numbers of documents ascend: a block is whole where its corners are of one
    last_column = (column * block + block).clamp(max=n) - 1
    whole = (own[first_row[row]] == own[last_row[row]]) & (own[column * block] == own[last_column])
    whole &= own[first_row[row]] == own[column * block]
    whole &= (last_row[row] - first_row[row] == block - 1) & (last_column - column * block == block - 1)
    some = (~whole).nonzero().view(-1)
    at = torch.nn.functional.pad(own, (0, len(first_row) * block - n), value=-1).view(-1, block)
    tiles = ((at[row[some], :, None] == at[column[some], None]) & (at[row[some], :, None] >= 0)).byte()
    tile = torch.full_like(row, FULL).index_put((some,), torch.arange(len(some)))
    found = Mask._of_blocks(settled(Blocks((n, n), 1, block, row, column, tile, tiles))).to(device)
    return found & causal_mask(n, block=block) if causal else found


def pages(table: Tensor, lengths: Tensor, page: int, *, count: int, queries: int = 1) -> Planes:
    """Keys of all sequences in the pages of one cache, for decoding: each sequence attends its own, up to its length,
    and of several queries, which are its last tokens, each those up to itself.

        keys = values = torch.zeros(1, heads, count * page, width)
        gsb.flex_attention(query, keys, values, block_mask=gsb.masks.pages(table, lengths, page, count=count))

    Args:
        table: (batch, pages of a sequence) integers, which page of the cache each is. Those behind the last key of a
            sequence may be anything.
        lengths: (batch,) integers, how many keys each sequence has, those of its queries counted.
        page: keys in a page, which is also the side of a block.
        count: pages of the cache, which has ``count * page`` keys.
        queries: of each sequence.

    Returns:
        `Planes` of one head for each sequence, (queries, count * page).

    Raises:
        TypeError, ValueError: an argument is not as above; it is quoted.
    """
    check_side("pages", page)
    count, queries = check_count("count", count), check_count("queries", queries)
    if not isinstance(table, Tensor) or table.dim() != 2 or table.is_floating_point() or table.dtype is torch.bool:
        given = f"{tuple(table.shape)} of {table.dtype}" if isinstance(table, Tensor) else type(table).__name__
        raise TypeError(f"pages: table must be a (batch, pages of a sequence) tensor of integers, got {given}")
    device, batch = table.device, table.shape[0]
    lengths = as_index_vector("lengths", lengths).long().cpu()
    if lengths.numel() != batch or not batch:
        raise ValueError(f"pages: lengths must be of the {batch} sequences of table, got {tuple(lengths.shape)}")
    check_range("lengths", lengths, table.shape[1] * page + 1, "keys that the table has pages for, and more")
    used = -(-lengths // page)
    rows = -(-queries // page)
    sequence = torch.repeat_interleave(used)
    place = torch.arange(len(sequence)) - (used.cumsum(0) - used)[sequence]
    column = table.long().cpu()[sequence, place]
    check_range("table", column, count, "pages of the cache")
    if len(torch.unique(sequence * max(count, 1) + column)) != len(column):
        raise ValueError("pages: table has a page twice in one sequence")
    # how many keys of a page each query of a row of blocks sees
    query = torch.arange(rows * page).view(rows, 1, page)
    seen = ((lengths - queries)[sequence] - place * page)[:, None] + query + 1  # (rows, blocks, queries of a row)
    seen = seen.clamp(0, page).transpose(0, 1)
    seen = torch.where(query.transpose(0, 1) < queries, seen, 0)
    kinds, tile = torch.unique(seen.reshape(-1, page), dim=0, return_inverse=True)
    tiles = (torch.arange(page) < kinds[:, :, None]).byte()
    lines = (sequence[:, None] * rows + torch.arange(rows)).view(-1)
    blocks = Blocks((queries, count * page), batch, page, lines, column.repeat_interleave(rows), tile, tiles)
    return Planes(Mask._of_blocks(settled(blocks)).to(device), batch, 1)
