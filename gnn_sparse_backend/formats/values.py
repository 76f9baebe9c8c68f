"""Moving edge values between CSR order and the layout of a format.

Two kinds of map describe every format:

- a **value position** map, from slot to CSR position, -1 where the slot is padding. Each edge has a slot of its own.
- a **slot** map, from CSR position to slot. Edges at one coordinate share their slot, and their values are summed.

In both, ``unpad`` is the adjoint of ``pad``: it is also the gradient of ``pad``. All functions are
differentiable, never synchronise with the host, and move padding by selection, not by multiplication, so that
an Inf or NaN stays with its own edge.
"""

from __future__ import annotations

import math

import torch


def check_values(values, nnz):
    """TypeError or ValueError unless ``values`` is a tensor with one leading entry for each of the ``nnz`` edges."""
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"values must be a torch tensor, got {type(values).__name__}")
    if values.dim() < 1 or values.shape[0] != nnz:
        raise ValueError(f"values must have shape (nnz, ...) with nnz = {nnz}, got {tuple(values.shape)}")
    return values


def check_padded(padded, slot_shape):
    """ValueError unless ``padded`` has shape ``slot_shape`` followed by any feature dimensions."""
    if padded.shape[: len(slot_shape)] != torch.Size(slot_shape):
        raise ValueError(
            f"padded values must have shape {tuple(slot_shape)} followed by any feature dimensions, "
            f"got {tuple(padded.shape)}"
        )
    return padded


def pad_by_position(values, value_position):
    """(nnz, ...) -> (*value_position.shape, ...), 0 at padded slots."""
    nnz = values.shape[0]
    # The padded slots read one appended row of zeros.
    extended = torch.cat([values, values.new_zeros((1, *values.shape[1:]))])
    source = torch.where(value_position < 0, nnz, value_position).reshape(-1)
    return extended.index_select(0, source).reshape(*value_position.shape, *values.shape[1:])


def unpad_by_position(pieces, nnz):
    """The inverse of `pad_by_position` over ``pieces``, pairs (padded, value_position) that cover all edges."""
    features = pieces[0][0].shape[pieces[0][1].dim() :]
    source = torch.cat([padded.reshape(-1, *features) for padded, _ in pieces])
    target = torch.cat([position.reshape(-1) for _, position in pieces])
    # The padded slots write one row past the end, which is cut off.
    target = torch.where(target < 0, nnz, target).long()
    return source.new_zeros((nnz + 1, *features)).index_copy(0, target, source)[:nnz]


def pad_by_slot(values, slots, slot_shape):
    """(nnz, ...) -> (*slot_shape, ...), 0 at padded slots, the sum where edges share a slot.

    float16 and bfloat16 values are summed in float32.
    """
    features = values.shape[1:]
    wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    padded = wide.new_zeros((math.prod(slot_shape), *features)).index_add(0, slots, wide)
    return padded.to(values.dtype).reshape(*slot_shape, *features)


def unpad_by_slot(padded, slots, slot_dims):
    """(*slot_shape, ...) -> (nnz, ...): every edge takes the value of its slot."""
    return padded.flatten(0, slot_dims - 1).index_select(0, slots)
