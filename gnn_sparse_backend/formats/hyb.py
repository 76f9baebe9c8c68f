"""hyb(c, k): columns in c partitions, rows in buckets of power-of-two width."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from . import values as maps
from .base import SparseFormat
from .counts import counts_of
from .partitions.row_parts import split_rows
from .structure import check_csr, check_integer, check_slots, index_type, row_of_position

MAX_EXPONENT = 30
"""Largest k: a bucket width must fit int32."""

MAX_PARTITIONS = 4096
"""Largest c: every partition has buckets, and so kernels, of its own."""


@dataclass(frozen=True, eq=False)
class HybBucket:
    """One ELL piece of a hyb structure: rows of one partition whose (part) length is in (width / 2, width].

    Attributes:
        partition: number of the column partition.
        width: slots per bucket row, a power of two.
        row_indices: (num_rows,) row coordinate of each bucket row, ascending; the parts of a split row repeat
            it and are adjacent.
        indices: (num_rows, width) column coordinates in the whole matrix, real ones first, -1 at padded slots.
        value_position: (num_rows, width) CSR positions, -1 at padded slots.
        nnz: edges of this bucket.
    """

    partition: int
    width: int
    row_indices: torch.Tensor
    indices: torch.Tensor
    value_position: torch.Tensor
    nnz: int

    @property
    def num_rows(self):
        """Bucket rows."""
        return self.row_indices.numel()

    @property
    def padding(self):
        """Padded slots per edge of this bucket, under 1; 0.0 when it is empty."""
        return self.num_rows * self.width / self.nnz - 1 if self.nnz else 0.0

    @property
    def nbytes(self):
        """Bytes of the three arrays."""
        return self.row_indices.nbytes + self.indices.nbytes + self.value_position.nbytes

    def __repr__(self):
        return (
            f"HybBucket(partition={self.partition}, width={self.width}, num_rows={self.num_rows}, nnz={self.nnz}, "
            f"padding={self.padding:.3g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class HybFormat(SparseFormat):
    """hyb(c, k) (SparseTIR, section 4.2.1): a composition of ELL pieces that bounds both padding and row length.

    The columns are cut into ``c`` partitions of ceil(n_cols / c). In each partition, a row with l > 0 edges
    goes to the bucket of width 2**b, 2**(b-1) < l <= 2**b. A row longer than 2**k is split: full parts of
    width 2**k, and the rest to the bucket of its own length, which pads less than another part of 2**k.
    Rows without edges are stored nowhere. Every bucket row is more than half full, so the padding is under 1.

    A padded slot has the coordinate **-1**, which a kernel skips. Buckets of several partitions, and parts of
    a split row, add to the same output row: a kernel must start from zeros and accumulate, and rows that run in
    parallel must add atomically unless ``disjoint``.

    Attributes:
        shape: (n_rows, n_cols).
        nnz: number of edges.
        partitions: c.
        exponent: k.
        buckets: `HybBucket` pieces, by partition and then by width; empty ones are left out unless asked for.
        disjoint: no row occurs in two bucket rows, so that a kernel may store instead of accumulate.
    """

    shape: tuple[int, int]
    nnz: int
    partitions: int
    exponent: int
    buckets: tuple[HybBucket, ...]
    disjoint: bool
    # Kept apart from the arrays, because there may be no bucket to ask.
    _index_dtype: torch.dtype
    _device: torch.device

    @classmethod
    def from_csr(cls, indptr, indices, shape, c=1, k=None, *, keep_empty=False, max_slots=None, check=True):
        """Sort the rows of a CSR structure into buckets.

        Args:
            indptr, indices, shape, check: see `structure.check_csr`.
            c: number of column partitions; the last ones may be empty.
            k: exponent of the widest bucket, 0 to 30; default `default_exponent`.
            keep_empty: also store the buckets without rows, c * (k + 1) buckets in all.
            max_slots: limit on the slots and on c * n_rows (see `structure.check_slots`).

        Raises:
            TypeError, ValueError: c or k out of range, or the limit is passed.
        """
        indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
        n_rows, n_cols = shape
        nnz = indices.numel()
        c = check_integer("c", c)
        k = default_exponent(nnz, n_rows) if k is None else check_integer("k", k, minimum=0)
        if c > MAX_PARTITIONS or k > MAX_EXPONENT:
            raise ValueError(f"hyb takes c up to {MAX_PARTITIONS} and k up to {MAX_EXPONENT}, got c = {c} and k = {k}")
        check_slots(
            c * n_rows, nnz, max_slots, f"hyb({c}, {k}) on {n_rows} rows, which counts c * n_rows row pieces, and"
        )

        order, lengths = _split_columns(indptr, indices, shape, c)
        # Exact in integers: widths[b - 1] < length <= widths[b].
        widths = [2**b for b in range(k + 1)]
        steps = 1 << torch.arange(k + 1, device=indptr.device)  # made there: a copy from the host would wait
        # The sizes of all buckets, before anything of theirs is made: this is where a GPU is waited for, once.
        full, rest = lengths >> k, lengths & (2**k - 1)
        first = torch.arange(c, device=indptr.device).repeat_interleave(n_rows, output_size=c * n_rows) * (k + 1)
        of_rest = first + torch.bucketize(rest, steps)
        row_counts, edge_counts = (
            full.new_zeros(c * (k + 1)).index_add_(0, of_rest, each_rest).index_add_(0, first + k, each_full)
            for each_rest, each_full in ((rest.gt(0).long(), full), (rest, full << k))
        )
        repeated = (full + rest.gt(0)).reshape(c, n_rows).sum(0).gt(1).any()
        facts = torch.cat([row_counts, edge_counts, repeated.reshape(1).long()]).tolist()
        row_counts, edge_counts, repeated = facts[: c * (k + 1)], facts[c * (k + 1) : -1], facts[-1]
        piece, start, length = split_rows(lengths, 2**k, sum(row_counts))
        partition = torch.div(piece, max(n_rows, 1), rounding_mode="floor")
        bucket = partition * (k + 1) + torch.bucketize(length, steps)

        num_slots = sum(count * width for count, width in zip(row_counts, widths * c))
        check_slots(num_slots, nnz, max_slots, f"hyb({c}, {k})")
        dtype = index_type(indptr.dtype, num_slots, n_rows, n_cols, nnz + 2**k)
        # Stable, so that rows ascend in each bucket and the parts of a split row stay adjacent.
        by_bucket = torch.sort(bucket.to(torch.int32), stable=True).indices
        part_row, part_start, part_length = (
            part.index_select(0, by_bucket).to(dtype) for part in (piece - partition * n_rows, start, length)
        )
        positions = order.to(dtype) if order is not None else None
        # Slot 0 of the extended array is the coordinate of padding.
        columns = torch.cat([indices.new_full((1,), -1), indices]).to(dtype)
        buckets, first = [], 0
        for number, (count, bucket_nnz) in enumerate(zip(row_counts, edge_counts)):
            if count or keep_empty:
                part = slice(first, first + count)
                width = widths[number % (k + 1)]
                position = _bucket_positions(part_start[part], part_length[part], width, positions)
                index = columns.index_select(0, (position + 1).reshape(-1)).reshape(count, width)
                # A copy: a slice would keep the rows of all buckets alive.
                buckets.append(HybBucket(number // (k + 1), width, part_row[part].clone(), index, position, bucket_nnz))
            first += count
        return cls(shape, nnz, c, k, tuple(buckets), repeated == 0, dtype, indptr.device)

    @property
    def index_dtype(self):
        """torch.int32 or torch.int64, the type of every index array."""
        return self._index_dtype

    @property
    def device(self):
        """The device of every array."""
        return self._device

    @property
    def partition_width(self):
        """Columns per partition, ceil(n_cols / c): partition p holds [p * width, min((p + 1) * width, n_cols))."""
        return -(-self.shape[1] // self.partitions)

    @property
    def num_slots(self):
        """Stored positions of all buckets."""
        return sum(bucket.indices.numel() for bucket in self.buckets)

    @property
    def nbytes(self):
        """Bytes of the arrays of all buckets."""
        return sum(bucket.nbytes for bucket in self.buckets)

    def pad_values(self, values):
        """(nnz, ...) -> one (num_rows, width, ...) tensor for each bucket, 0 at padded slots."""
        values = maps.check_values(values, self.nnz)
        return tuple(maps.pad_by_position(values, bucket.value_position) for bucket in self.buckets)

    def unpad_values(self, padded):
        """One (num_rows, width, ...) tensor for each bucket -> (nnz, ...), padded slots ignored.

        Raises:
            ValueError: not one tensor for each bucket, or of another shape; or there are no buckets, so that
                the type of the result is unknown.
        """
        if len(padded) != len(self.buckets):
            raise ValueError(f"expected one tensor for each of {len(self.buckets)} buckets, got {len(padded)}")
        if not self.buckets:
            raise ValueError(
                "a hyb structure without buckets has no values to take back; build it with keep_empty=True"
            )
        pieces = [
            (maps.check_padded(piece, bucket.indices.shape), bucket.value_position)
            for piece, bucket in zip(padded, self.buckets)
        ]
        return maps.unpad_by_position(pieces, self.nnz)

    def to_coo(self):
        """(row, col, position), each (nnz,), bucket by bucket."""
        empty = torch.empty(0, dtype=self.index_dtype, device=self.device)
        triples = [(empty, empty, empty)]
        for bucket in self.buckets:
            real = bucket.indices >= 0
            rows = bucket.row_indices[:, None].expand_as(real)[real]
            triples.append((rows, bucket.indices[real], bucket.value_position[real]))
        return tuple(torch.cat(arrays) for arrays in zip(*triples))


def default_exponent(nnz, n_rows):
    """k = ceil(log2(mean row length)), at least 0 (SparseTIR, section 4.2.1), computed exactly."""
    mean = -(-nnz // max(n_rows, 1))
    return min(max(mean - 1, 0).bit_length(), MAX_EXPONENT)


def _split_columns(indptr, indices, shape, c):
    """Group the edges by partition and row.

    Returns ``order``, (nnz,) CSR positions grouped by (partition, row) with CSR order inside (None for the
    identity), and ``lengths``, (c * n_rows,) int64 edges of each row piece.
    """
    n_rows, n_cols = shape
    if c == 1:
        return None, indptr.diff().long()
    partition = torch.div(indices, max(-(-n_cols // c), 1), rounding_mode="floor")
    order = torch.sort(partition, stable=True).indices
    piece = partition.long() * n_rows + row_of_position(indptr, indices.numel())
    return order, counts_of(piece, c * n_rows)


def _bucket_positions(start, length, width, positions):
    """(num_rows, width) CSR positions of the edges of the bucket rows, -1 past their length."""
    lane = torch.arange(width, dtype=start.dtype, device=start.device)
    slot = start[:, None] + lane
    absent = lane >= length[:, None]
    if positions is None:
        return slot.masked_fill_(absent, -1)
    slot.masked_fill_(absent, 0)
    return positions.index_select(0, slot.reshape(-1)).reshape(slot.shape).masked_fill_(absent, -1)
