"""Which tensors the kernels take."""

from __future__ import annotations

from operator import index

import torch
from spconv.pytorch.core import SparseConvTensor
from torch import Tensor

from ...ops.core.operands import autocasts, is_plain
from ...runtime import devices
from ...structures.checks import FLOATING
from ...structures.coordinates.checked import MOST_AXES
from ..core.refusal import Boundary, Refusal, refusal_of


class Spconv(Boundary):
    name = "spconv"


HOST = Spconv()


def batches_of(x) -> int:
    """How many batches a SparseConvTensor has, of which spconv takes a tensor, too."""
    return index(x.batch_size)


def refuse(x, *parameters: Tensor | None) -> Refusal | None:
    """Why a layer of a SparseConvTensor is not ours, whatever its sites, or None. parameters: weight and bias."""
    if not isinstance(x, SparseConvTensor):
        return Refusal("the input is no SparseConvTensor")
    if x.benchmark or x._timer.enable:
        return Refusal("spconv takes the time of its layers")
    features, indices = x.features, x.indices
    operands = [features, *(y for y in parameters if y is not None)]
    if not all(isinstance(y, Tensor) for y in operands) or not is_plain(indices, *operands, recorded=True):
        return Refusal("missing, subclass or traced tensor")
    if any(y.layout is not torch.strided for y in operands):
        return Refusal("sparse layout")
    for y in operands:
        if y.dtype not in FLOATING:
            return Refusal(f"dtype {str(y.dtype).removeprefix('torch.')}")
        if y.device != indices.device or (y.dtype is not features.dtype and not autocasts(features)):
            return Refusal("operands of two types or devices")
    if not features.is_cpu and (refusal := refusal_of(devices.why_not(features.device))) is not None:
        return refusal
    axes = len(x.spatial_shape)
    if not hasattr(x.batch_size, "__index__"):
        return Refusal("the shapes do not fit", f"batch_size {x.batch_size!r} is no whole number")
    fits = axes <= MOST_AXES and indices.dtype is torch.int32 and indices.shape == (features.shape[0], 1 + axes)
    return None if fits and features.dim() == 2 and features.shape[1] else Refusal("the shapes do not fit")
