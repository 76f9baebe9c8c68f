"""Rows cut where chunks of equally many non-zeros end: pieces of rows in groups that are all equally much work."""

from __future__ import annotations

import torch


def chunk_rows(indptr, nnz: int, size: int):
    """Cut the non-zeros of a CSR structure into chunks of ``size``, the last of which may be shorter, and rows at their
    ends.

    indptr: (rows + 1,), from 0 to ``nnz``. size: at least 1. Returns, in the type of indptr:
        chunk_ptr: (chunks + 1,): the first piece of each chunk, and the number of pieces.
        starts: (pieces + 1,): the position of the first non-zero of each piece, and ``nnz``.
        row_of_piece: (pieces,): rising. No piece is empty, so that a row without non-zeros has none.
    There are fewer pieces than rows with non-zeros and chunks together. Waits for a GPU once, for the number of pieces.
    """
    begins = torch.zeros(nnz + 1, dtype=torch.bool, device=indptr.device)
    begins[::size] = True
    begins.index_fill_(0, indptr.long(), True)  # an empty row's start is that of the next row
    starts = begins.nonzero().flatten()  # the one wait; ends with nnz, where the last row ends
    row_of_piece = torch.searchsorted(indptr.long(), starts[:-1], right=True) - 1
    chunks = -(-nnz // size)
    ends = (torch.arange(chunks + 1, device=indptr.device) * size).clamp_(max=nnz)
    chunk_ptr = torch.searchsorted(starts, ends)
    return tuple(x.to(indptr.dtype) for x in (chunk_ptr, starts, row_of_piece))
