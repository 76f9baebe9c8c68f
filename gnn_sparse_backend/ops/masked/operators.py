"""Attention and products on the blocks of a mask as operators.

    gsb::masked_attention            the result, and the logarithm of each query's sum of exponentials
    gsb::masked_attention_backward   the gradients of queries, keys and values
    gsb::masked_sddmm                dot products at the pairs of a mask    grad: masked_spmm, of each side
    gsb::masked_spmm                 sums over the pairs of each query      grad: masked_sddmm, and masked_spmm

The backward pass of attention computes the scores again. The derivatives of that are those of the products and the
softmax that attention is composed of.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.devices import on_either
from ...runtime.type_names import accumulator_of
from ...structures.derived import untransformed
from ...structures.masks import Mask
from ..core.operands import check_fit
from ..core.operator import Operator
from ..core.traced import Traced
from ..core.transforms import pulled_back
from . import executables_cuda as on_gpu
from .composed import composed_gradients, know
from .dropout import Dropout
from .executables_cpu import attend, attend_backward, dots, sums
from .traced import MASK


def _dropout(seed: Tensor | None, probability: float) -> Dropout | None:
    return None if seed is None else Dropout(probability, seed)


def _run(mask: Mask, operands, attributes) -> Tensor:
    return _both(mask, operands, attributes)[0]


def _both(mask: Mask, operands, attributes) -> tuple[Tensor, Tensor]:
    q, k, v, seed = operands
    scale, probability = attributes
    return on_either(q, attend, on_gpu.attend, mask, q, k, v, scale, _dropout(seed, probability))


def _gradients(structure, attributes, saved, memo, needed, grad: Tensor, *of_lse: Any) -> list[Tensor | None]:
    q, k, v, seed, out, lse = saved
    return [*BACKWARD(structure, (q, k, v, seed, out, lse, grad), attributes), None]


def _gradients_of_backward(structure, attributes, saved, memo, needed, *cotangents: Tensor) -> list[Tensor | None]:
    """``out`` and ``lse`` are what the others make them, so that all of the derivative is by these."""
    q, k, v, seed, _, _, grad = saved
    mask = MASK.live(structure.arguments, ()) if isinstance(structure, Traced) else structure
    untransformed(know, mask)

    def function(operands: list[Tensor]) -> list[Tensor]:
        return composed_gradients(DOTS, SUMS, mask, operands[:3], seed, attributes, operands[3])

    to_q, to_k, to_v, to_grad = pulled_back(function, (q, k, v, grad), (*needed[:3], needed[6]), cotangents)
    return [to_q, to_k, to_v, None, None, None, to_grad]


def _run_backward(mask: Mask, operands, attributes) -> tuple[Tensor, ...]:
    q, k, v, seed, out, lse, grad = operands
    scale, probability = attributes
    given = mask, (q, k, v), out, lse, grad, scale, _dropout(seed, probability)
    return on_either(q, attend_backward, on_gpu.attend_backward, *given)


def _run_dots(mask: Mask, operands, attributes) -> Tensor:
    return on_either(operands[0], dots, on_gpu.dots, mask, *operands)


def _run_sums(mask: Mask, operands, attributes) -> Tensor:
    return on_either(operands[1], sums, on_gpu.sums, mask, *operands, *attributes)


def _gradients_of_dots(structure, attributes, saved, memo, needed, grad: Tensor) -> list[Tensor | None]:
    a, b = saved
    to_a = SUMS(structure, (grad, b), (False,)) if needed[0] else None
    return [to_a, SUMS(structure, (grad, a), (True,)) if needed[1] else None]


def _gradients_of_sums(structure, attributes, saved, memo, needed, grad: Tensor) -> list[Tensor | None]:
    (values, b), (transposed,) = saved, attributes
    to_values = DOTS(structure, (b, grad) if transposed else (grad, b)) if needed[0] else None
    return [to_values, SUMS(structure, (values, grad), (not transposed,)) if needed[1] else None]


def fits_mask(mask: Mask, q: Tensor, k: Tensor, *v: Tensor) -> bool:
    """Whether lengths, heads and sequences are those of the mask and each other's."""
    if any(x.dim() != 4 for x in (q, k, *v)):
        return False
    batch, heads = q.shape[:2]
    fits = all(x.shape[:2] == (batch, heads) and x.dtype is q.dtype for x in (k, *v))
    fits = fits and (q.shape[2], k.shape[2]) == mask.shape and all(x.shape[2] == k.shape[2] for x in v)
    fits = fits and mask.heads in (1, heads)
    return fits and (mask.padding is None or mask.padding.shape[0] in (1, batch))


def _check(mask: Mask, operands, attributes):
    q, k, v, seed, *rest = operands
    fits = fits_mask(mask, q, k, v) and q.shape[3] == k.shape[3]
    if rest and fits:
        out, lse, grad = rest
        fits = out.shape == grad.shape == (*q.shape[:3], v.shape[3]) and lse.shape == q.shape[:3]
        fits = fits and out.dtype is grad.dtype is q.dtype and lse.dtype is accumulator_of(q.dtype)
    fits = fits and (seed is None or (seed.shape == (2,) and seed.dtype is torch.int64))
    check_fit("masked_attention", mask, fits, *operands)
    return operands


def _check_dots(mask: Mask, operands, attributes):
    a, b = operands
    check_fit("masked_sddmm", mask, fits_mask(mask, a, b) and a.shape[3] == b.shape[3], a, b)
    return operands


def _check_sums(mask: Mask, operands, attributes):
    (values, b), (transposed,) = operands, attributes
    fits = b.dim() == 4 and b.shape[2] == mask.shape[0 if transposed else 1] and b.shape[1] in (mask.heads, b.shape[1])
    fits = fits and values.dtype is b.dtype and mask.heads in (1, b.shape[1])
    fits = fits and values.shape == value_shape(mask, b)
    check_fit("masked_spmm", mask, fits, values, b)
    return operands


def value_shape(mask: Mask, b: Tensor) -> tuple[int, ...]:
    """Shape of the numbers of the pairs of a mask, for the heads and sequences of b."""
    return b.shape[0], b.shape[1] // mask.heads, mask.num_blocks, mask.block, mask.block


def _like(arguments, operands, attributes, transposed: bool) -> tuple[Tensor, Tensor]:
    q, _, v, _ = operands
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty(q.shape[:3], dtype=accumulator_of(q.dtype))


def _like_backward(arguments, operands, attributes, transposed: bool) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in operands[:3])


def _like_dots(arguments, operands, attributes, transposed: bool) -> Tensor:
    (a, _), block = operands, arguments[3].shape[1]
    return a.new_empty((a.shape[0], a.shape[1] // arguments[7], arguments[1].shape[0], block, block))


def _like_sums(arguments, operands, attributes, transposed: bool) -> Tensor:
    b = operands[1]
    return b.new_empty((*b.shape[:2], arguments[6 if attributes[0] else 5], b.shape[3]))


ATTENTION = Operator(
    "masked_attention",
    _run,
    _gradients,
    structure=MASK,
    operands="Tensor q, Tensor k, Tensor v, Tensor? seed",
    attributes="float scale, float dropout",
    results="(Tensor, Tensor)",
    like=_like,
    check=_check,
    library=_both,
    saved=lambda attributes, operands, results: ((*operands, *results), None),
)
"""Attributes: (scale, probability of a weight to be dropped); a seed where weights are."""
BACKWARD = Operator(
    "masked_attention_backward",
    _run_backward,
    _gradients_of_backward,
    structure=MASK,
    operands="Tensor q, Tensor k, Tensor v, Tensor? seed, Tensor out, Tensor lse, Tensor grad",
    attributes="float scale, float dropout",
    results="(Tensor, Tensor, Tensor)",
    like=_like_backward,
    check=_check,
)
DOTS = Operator(
    "masked_sddmm",
    _run_dots,
    _gradients_of_dots,
    structure=MASK,
    operands="Tensor a, Tensor b",
    like=_like_dots,
    check=_check_dots,
)
SUMS = Operator(
    "masked_spmm",
    _run_sums,
    _gradients_of_sums,
    structure=MASK,
    operands="Tensor values, Tensor b",
    attributes="bool transposed",
    like=_like_sums,
    check=_check_sums,
)
