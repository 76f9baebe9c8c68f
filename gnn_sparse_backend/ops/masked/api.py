"""``gsb.sparse_attention``, ``gsb.masked_sddmm`` and ``gsb.masked_spmm``."""

from __future__ import annotations

import math

from torch import Tensor

from ...structures.masks import Mask
from ..core.operands import is_plain, product_operands
from .dropout import new_seed
from .operators import ATTENTION, DOTS, SUMS, value_shape
from .traced import traced_mask


def sparse_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """``out[i] = sum over the keys j that query i may attend of softmax(scale * <q[i], k[j]>) * v[j]``.

    In one pass over the blocks of the mask with an online softmax (FlashAttention: Dao et al., 2022), forward and
    backward: nothing of the size of the pairs is stored, and memory grows with the lengths alone. A second derivative
    has a number for each pair of the blocks.

    Args:
        q: (batch, heads, queries, D) in float32, float64, bfloat16 or float16, of any strides.
        k: (batch, heads, keys, D), of the type of ``q``.
        v: (batch, heads, keys, Dv); Dv may differ from D.
        mask: of ``gsb.masks``: (queries, keys), of one head for all or of as many as ``q`` has, with padding or
            without.
        scale: None for ``1 / sqrt(D)``.
        dropout: probability of a weight to be dropped, after the softmax; the others grow by ``1 / (1 - dropout)``.
            Which ones depends on PyTorch's generator of the CPU alone, as ``torch.manual_seed`` sets it.

    Returns:
        (batch, heads, queries, Dv), contiguous, in the type of ``q``; half types are computed in float32. A query that
        may attend no key is 0, and so are its gradients. Keys and values that no query of a block may attend are never
        seen by it, be they NaN. The bits are the same at every run and for any number of threads. Gradients of any
        order flow to q, k and v. Under autocast the operands are cast to its type. Works under ``torch.compile``
        without a graph break.

    Raises:
        TypeError: an operand is not a dense floating tensor, types differ, or ``mask`` is none.
        ValueError: a shape or device does not fit, or ``scale`` or ``dropout`` is not a number that can be.
    """
    name = "sparse_attention"
    q, k, v = _operands(name, mask, {"q": q, "k": k, "v": v})
    _check_heads(name, mask, "q", q, mask.shape[0], "queries")
    for label, x in (("k", k), ("v", v)):
        _check_heads(name, mask, label, x, mask.shape[1], "keys")
        if x.shape[:2] != q.shape[:2]:
            raise ValueError(
                f"{name}: {label} must have the sequences and heads of q {tuple(q.shape)}, got {tuple(x.shape)}"
            )
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"{name}: q and k must have the same width, got {tuple(q.shape)} and {tuple(k.shape)}")
    _check_padding(name, mask, q)
    if scale is None:
        scale = 1.0 / math.sqrt(max(q.shape[3], 1))
    elif isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise ValueError(f"{name}: scale must be a number or None, got {scale!r}")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"{name}: dropout must be a probability in [0, 1), got {dropout!r}")
    seed = new_seed() if dropout else None
    return _call(ATTENTION, mask, (q, k, v, seed), (float(scale), float(dropout)))


def masked_sddmm(mask: Mask, a: Tensor, b: Tensor) -> Tensor:
    """``values[i, j] = <a[i], b[j]>`` at the pairs of a mask, block by block.

    Args:
        mask: of ``gsb.masks``: (queries, keys). Its padding is not looked at.
        a: (batch, heads, queries, D) in float32, float64, bfloat16 or float16.
        b: (batch, heads, keys, D).

    Returns:
        (batch, heads, blocks of the mask, block, block), rows of a block by its columns: zeros where a block has pairs
        that the mask has not. Where a mask has heads of their own, its blocks are those of all of them, and the second
        dimension is 1. Gradients of any order flow to a and b.

    Raises:
        TypeError, ValueError: as ``sparse_attention``.
    """
    name = "masked_sddmm"
    a, b = _operands(name, mask, {"a": a, "b": b})
    _check_heads(name, mask, "a", a, mask.shape[0], "queries")
    _check_heads(name, mask, "b", b, mask.shape[1], "keys")
    if a.shape[:2] != b.shape[:2] or a.shape[3] != b.shape[3]:
        raise ValueError(
            f"{name}: a and b must have the same sequences, heads and width, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    return _call(DOTS, mask, (a, b), ())


def masked_spmm(mask: Mask, values: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """``out[i] = sum over the pairs (i, j) of a mask of values[i, j] * b[j]``.

    Args:
        mask: of ``gsb.masks``: (queries, keys). Its padding is not looked at.
        values: as ``masked_sddmm`` gives them. What stands at pairs that the mask has not is not looked at.
        b: (batch, heads, keys, D), of the type of ``values``; with ``transposed`` (batch, heads, queries, D).
        transposed: sums over the queries of each key, ``out[j] = sum of values[i, j] * b[i]``.

    Returns:
        (batch, heads, queries, D), or keys where ``transposed``, contiguous. Gradients of any order flow to values and
        b.

    Raises:
        TypeError, ValueError: as ``sparse_attention``.
    """
    name = "masked_spmm"
    values, b = _operands(name, mask, {"values": values, "b": b})
    _check_heads(name, mask, "b", b, mask.shape[0 if transposed else 1], "queries" if transposed else "keys")
    if values.shape != value_shape(mask, b):
        raise ValueError(
            f"{name}: values must be {value_shape(mask, b)}, (batch, heads / heads of the mask, blocks, block, block) "
            f"of {mask!r} and b {tuple(b.shape)}, got {tuple(values.shape)}"
        )
    return _call(SUMS, mask, (values, b), (bool(transposed),))


def _operands(name: str, mask: Mask, operands: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """The operands, checked, all of one type: that of autocast where it is on."""
    if not isinstance(mask, Mask):
        raise TypeError(
            f"{name}: mask must be a gsb.masks.Mask, got {type(mask).__name__}; gsb.masks.from_dense makes one of a "
            "bool matrix, and gsb.masks.from_graph of a gsb.Graph"
        )
    return tuple(product_operands(name, "mask", mask.device, operands))


def _check_heads(name: str, mask: Mask, label: str, x: Tensor, length: int, of_what: str) -> None:
    if x.dim() != 4 or x.shape[2] != length:
        raise ValueError(
            f"{name}: {label} must have shape (batch, heads, {of_what}, width) with the {length} {of_what} of "
            f"{mask!r}, got {tuple(x.shape)}"
        )
    if mask.heads not in (1, x.shape[1]):
        raise ValueError(
            f"{name}: the mask has {mask.heads} heads, so {label} must have as many, got {tuple(x.shape)}: give a mask "
            "of one head for all, or of one for each"
        )
    if mask.assumed and mask.heads == x.shape[0] > 1:
        raise ValueError(
            f"{name}: the mask was made of a tensor ({mask.heads}, queries, keys), which is read as one for each head, "
            f"and {label} {tuple(x.shape)} has as many sequences; say masks.from_dense(allowed, of='heads') if it is, "
            "and of one for each sequence call the attention of each by itself"
        )


def _check_padding(name: str, mask: Mask, q: Tensor) -> None:
    if mask.padding is not None and mask.padding.shape[0] not in (1, q.shape[0]):
        raise ValueError(
            f"{name}: the padding of {mask!r} is for {mask.padding.shape[0]} sequences, but q {tuple(q.shape)} has "
            f"{q.shape[0]}"
        )


def _call(operator, mask: Mask, operands: tuple, attributes: tuple) -> Tensor:
    structure = mask if is_plain(*operands) else traced_mask(mask)
    return operator(structure, operands, attributes)
