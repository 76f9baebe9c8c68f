"""What every format shares about its input: the checks of a CSR structure and the choice of an index type."""

from __future__ import annotations

import operator

import torch

from .counts import read

INT32_MAX = 2**31 - 1
"""Largest value that an int32 index array may hold or address. The tests lower it."""

DEFAULT_MAX_SLOTS = 2**28
"""Slots that a padded format may store without being asked (1 GiB of int32 indices)."""

INDEX_TYPES = (torch.int32, torch.int64)


def check_csr(indptr, indices, shape, *, check=True):
    """Check a CSR structure and return it as ``(indptr, indices, (n_rows, n_cols))``, both arrays contiguous.

    Args:
        indptr: (n_rows + 1,) int32 or int64 tensor, offsets of the rows in ``indices``.
        indices: (nnz,) tensor of the same type on the same device, column coordinates. Unsorted and repeated
            coordinates are allowed.
        shape: (n_rows, n_cols).
        check: also look at the values, which costs one pass over both arrays and one host synchronisation.
            Pass False only for a structure that was checked before.

    Raises:
        TypeError: an argument is of the wrong kind or type.
        ValueError: the arrays do not describe a matrix of this shape; the offending value is quoted.
    """
    for name, array in (("indptr", indptr), ("indices", indices)):
        if not isinstance(array, torch.Tensor):
            raise TypeError(
                f"{name} must be a torch tensor, got {type(array).__name__}; convert it with torch.as_tensor"
            )
        if array.dtype not in INDEX_TYPES:
            raise TypeError(f"{name} must be int32 or int64, got {array.dtype}")
        if array.dim() != 1:
            raise ValueError(f"{name} must have one dimension, got shape {tuple(array.shape)}")
    if indptr.dtype != indices.dtype:
        raise TypeError(f"indptr is {indptr.dtype} but indices are {indices.dtype}; give both the same type")
    if indptr.device != indices.device:
        raise ValueError(f"indptr is on {indptr.device} but indices are on {indices.device}; move them to one device")
    try:
        n_rows, n_cols = (operator.index(extent) for extent in shape)
    except (TypeError, ValueError):
        raise TypeError(f"shape must be two integers (n_rows, n_cols), got {shape!r}") from None
    if n_rows < 0 or n_cols < 0:
        raise ValueError(f"shape must not be negative, got {(n_rows, n_cols)}")
    if indptr.numel() != n_rows + 1:
        raise ValueError(
            f"indptr must have n_rows + 1 = {n_rows + 1} entries for shape {(n_rows, n_cols)}, got {indptr.numel()}"
        )
    if check:
        _check_values(indptr, indices, n_cols)
    return indptr.contiguous(), indices.contiguous(), (n_rows, n_cols)


def _check_values(indptr, indices, n_cols):
    nnz = indices.numel()
    bounds = check_offsets("indptr", indptr, nnz, "indices", *(torch.aminmax(indices) if nnz else ()))
    if nnz and (bounds[0] < 0 or bounds[1] >= n_cols):
        position = int(((indices < 0) | (indices >= n_cols)).nonzero()[0])
        raise ValueError(f"indices must lie in [0, {n_cols}), got indices[{position}] = {int(indices[position])}")


def check_offsets(name, offsets, count, of_what, *beside):
    """Offsets, one at least, go from 0 to ``count``, the number ``of_what``, without decreasing. ``count`` of None: to
    any number.

    Returns the numbers ``beside``, 0-d tensors of integers: a GPU is waited for once, for all of them.
    """
    decreases = offsets[1:] < offsets[:-1]
    first, last, falls, *read_beside = read(offsets[0], offsets[-1], decreases.any(), *beside)
    if first != 0:
        raise ValueError(f"{name}[0] must be 0, got {first}")
    if falls:
        at = int(decreases.nonzero()[0])
        raise ValueError(
            f"{name} must not decrease: {name}[{at}] = {int(offsets[at])} but {name}[{at + 1}] = {int(offsets[at + 1])}"
        )
    if count is not None and last != count:
        raise ValueError(f"{name} must end with the number of {of_what} {count}, got {last}")
    return read_beside


def index_type(given, *extents):
    """The index type of a format: ``given``, widened to int64 when an extent does not fit int32.

    ``extents`` are the largest values that the arrays hold, and the number of slots that a kernel addresses
    with them: a flat offset is computed in the type of the indices, so it must fit too.
    """
    return torch.int64 if given == torch.int64 or max(extents, default=0) > INT32_MAX else torch.int32


def row_of_position(indptr, nnz, dtype=None):
    """(nnz,) row coordinate of each CSR position, in ``dtype`` (default: that of ``indptr``); no host sync."""
    rows = torch.arange(indptr.numel() - 1, dtype=dtype or indptr.dtype, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=nnz)


def positions_of_rows(indptr, rows):
    """(indptr of these rows one after the other, CSR position of each of their non-zeros), in the type of indptr."""
    return runs_of(indptr[:-1][rows], indptr.diff()[rows])


def runs_of(first, lengths):
    """(where each run begins and the last one ends, the numbers first, first + 1, ... of one run after the other)."""
    taken = torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)])
    numbers = torch.repeat_interleave(first - taken[:-1], lengths)
    return taken, numbers + torch.arange(numbers.numel(), dtype=first.dtype, device=first.device)


def check_integer(name, value, minimum=1):
    """``value`` as an int of at least ``minimum``; TypeError or ValueError quoting it otherwise."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = operator.index(value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    return number


def check_slots(num_slots, nnz, max_slots, what):
    """Refuse a padded format that would take unreasonable memory, before anything is allocated.

    The limit is ``max_slots``, or when that is None the larger of ``DEFAULT_MAX_SLOTS`` and ``4 * nnz``.
    """
    limit = max(DEFAULT_MAX_SLOTS, 4 * nnz) if max_slots is None else max_slots
    if num_slots > limit:
        raise ValueError(
            f"{what} would store {num_slots} slots for {nnz} non-zeros, more than the limit of {limit}; "
            "choose a format that pads less (hyb, or CSR), or raise max_slots"
        )
