"""Rows cut into parts of bounded length."""

from __future__ import annotations

import torch


def split_rows(lengths, limit, count=None):
    """Cut row pieces into parts of at most ``limit`` edges.

    lengths: (pieces,) int64. Returns, for each part in the order of the pieces: its piece, its start in the grouped order
    of the edges, and its length, from 1 to ``limit``. Pieces without edges have no part. count: of the parts, where it is known;
    otherwise a GPU is waited for.
    """
    parts = torch.div(lengths + (limit - 1), limit, rounding_mode="floor")
    pieces = torch.arange(lengths.numel(), device=lengths.device)
    piece = torch.repeat_interleave(pieces, parts, output_size=count)
    first_part = (parts.cumsum(0) - parts).index_select(0, piece)
    done = (torch.arange(piece.numel(), device=lengths.device) - first_part) * limit
    start = (lengths.cumsum(0) - lengths).index_select(0, piece) + done
    return piece, start, (lengths.index_select(0, piece) - done).clamp_(max=limit)
