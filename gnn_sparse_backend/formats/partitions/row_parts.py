"""Rows cut into parts of bounded length."""

from __future__ import annotations

import torch


def ceil_div(x, by):
    """x / by for integers or tensors of them, of which one is a tensor, rounded up."""
    return torch.div(x + (by - 1), by, rounding_mode="floor")


def most_parts(total, rows, limit):
    """Most parts of at most ``limit`` elements that ``rows`` rows of ``total`` elements together are cut into.

    A row of n > 0 makes ceil(n / limit) <= (n + limit - 1) / limit parts, none of which is empty.
    """
    return min(total, (total + min(rows, total) * (limit - 1)) // limit)


def runs(counts, count=None, most=None):
    """For each element of runs of these lengths: (which run it is in, its place there).

    counts: (runs,) int64. count: of the elements, where it is known; otherwise a GPU is waited for. most: instead, as
    many or more: then nothing is waited for, and elements beyond the last are in the last run, at places beyond its
    end.
    """
    ends = counts.cumsum(0)
    if most is None:
        run = torch.repeat_interleave(counts, output_size=count)
        numbers = torch.arange(run.numel(), device=counts.device)
    else:
        numbers = torch.arange(most, device=counts.device)
        run = torch.searchsorted(ends, numbers, right=True).clamp_(max=counts.numel() - 1)
    return run, numbers - (ends - counts).index_select(0, run)


def split_rows(lengths, limit, count=None, most=None):
    """Cut row pieces into parts of at most ``limit`` edges.

    lengths: (pieces,) int64. Returns, for each part in the order of the pieces: its piece, its start in the grouped
    order of the edges, and its length, from 1 to ``limit``. Pieces without edges have no part. count, most: of the
    parts, as of ``runs``; parts beyond the last have no edges, and start after all of them.
    """
    piece, place = runs(ceil_div(lengths, limit), count, most)
    done = place * limit
    ends = lengths.cumsum(0)
    start = (ends - lengths).index_select(0, piece) + done
    length = lengths.index_select(0, piece) - done
    if most is None:
        return piece, start, length.clamp_(max=limit)
    return piece, torch.minimum(start, ends[-1:]), length.clamp_(0, limit)
