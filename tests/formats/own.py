"""Formats as users write them: a bitmap of the columns of a row, and columns of eight rows."""

import torch

from gnn_sparse_backend.compiler import Buffer, FormatRewriteRule, Size, dense_fixed, dense_variable, sparse_variable
from gnn_sparse_backend.formats import Indices

AXES = {"bitmap": ("I", "J8", "P"), "columns": ("IO", "JO", "II")}


def bitmap(width):
    """Packed values, and a byte for as many columns of a row, whose bits say which are there."""
    blocks, values = Size("blocks"), Size("values")
    row = dense_fixed("I", Size("m"))
    byte = sparse_variable("J8", row, (Size("n"), blocks), ("indptr", "indices"))
    bit = dense_variable("P", byte, (width, values), "first")
    table = dense_fixed("B", 256), dense_fixed("Q", 8)
    bits, place = Buffer("Bits", (row, byte), "uint8"), Buffer("Place", table, "uint8")
    return FormatRewriteRule(
        "bitmap",
        (blocks, values),
        (byte, bit, *table),
        ("A",),
        ("I", "J"),
        AXES["bitmap"],
        {"I": ("I",), "J": ("J8", "P")},
        None,
        lambda i, j8, p: (i, j8 * width + place[bits[i, j8], p]),
        (bits, place),
    )


def infer_bitmap(matrix, width, taken=None):
    across = -(-matrix.shape[1] // width)
    byte, which = (matrix.rows * across + matrix.columns // width).unique(return_inverse=True)
    bits = torch.zeros_like(byte).index_add_(0, which, 1 << matrix.columns % width)
    places = [[p for p in range(8) if b >> p & 1] for b in range(256)]
    arrays = {
        "blocks": len(byte),
        "values": matrix.nnz,
        "indptr": ends(torch.bincount(byte // max(across, 1), minlength=matrix.shape[0])),
        "indices": byte % max(across, 1),
        "first": ends(torch.bincount(which, minlength=len(byte))),
        "Bits": bits,
        "Place": torch.tensor([(at + [0] * 8)[:8] for at in places]),
    }
    return Indices(arrays, torch.arange(matrix.nnz), taken)


def columns_of_eight(height):
    """A column of as many rows, stored whole, where it is full enough."""
    mb, nnz = Size("mb"), Size("nnz")
    block = dense_fixed("IO", mb)
    column = sparse_variable("JO", block, (Size("n"), nnz), ("indptr", "indices"))
    return FormatRewriteRule(
        "columns",
        (mb, nnz),
        (block, column, dense_fixed("II", height)),
        ("A",),
        ("I", "J"),
        AXES["columns"],
        {"I": ("IO", "II"), "J": ("JO",)},
        lambda i, j: (i // height, j, i % height),
        lambda io, jo, ii: (io * height + ii, jo),
        masked=True,
    )


def infer_columns(matrix, height):
    mb, n = -(-matrix.shape[0] // height), max(matrix.shape[1], 1)
    key = matrix.rows // height * n + matrix.columns
    taken = matrix.full(key, matrix.fill * height)
    matrix, key = matrix.those(taken), key[taken]
    column, which = key.unique(return_inverse=True)
    arrays = {"mb": mb, "nnz": len(column), "indptr": ends(torch.bincount(column // n, minlength=mb))}
    return Indices(arrays | {"indices": column % n}, which * height + matrix.rows % height, taken)


def ends(counts):
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
