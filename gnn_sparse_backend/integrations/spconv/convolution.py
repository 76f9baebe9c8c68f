"""Convolutions of spconv. All of them, and modules that users make of them, end in one method of their base class."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cumm.tensorview.gemm import Activation
from spconv.core import ConvAlgo
from spconv.pytorch.conv import _MAX_NUM_VOXELS_DURING_TRAINING as _MOST_VOXELS
from spconv.pytorch.conv import _apply_act
from torch import Tensor

from ...compiler.cache.background import for_framework
from ...ops.convolution.api import sparse_conv
from ..core.refusal import PASS, Refusal
from .maps import Place, SharedMap, place
from .operands import HOST, refuse

_NAMES = ("SubMConv", "SparseInverseConv", "SparseConvTranspose", "SparseConv")


def make_forward(original: Callable) -> Callable:
    """``SparseConvolutionBase._conv_forward`` on our kernels."""
    admitted = {name: HOST.admit(original, name, _forward) for name in _NAMES}

    @functools.wraps(original)
    def forward(layer, *args, **kwargs):
        return admitted[_name(layer)](layer, *args, **kwargs)

    return forward


def count_voxels(layer, indices: Tensor) -> None:
    """Note the most voxels that the layer has returned, if it was told to (``record_voxel_count``)."""
    most = getattr(layer, _MOST_VOXELS, None)
    if layer.record_voxel_count and most is not None:
        most.clamp_(min=indices.shape[0])


def _forward(
    layer,
    training,
    input,
    weight,
    bias,
    add_input=None,
    channel_scale=None,
    output_scale=None,
    name=None,
    sparse_unique_name="",
    act_type=Activation.None_,
    act_alpha=0,
    act_beta=0,
):
    if layer.conv1x1:
        return PASS  # a dense product of PyTorch's
    there = _place(layer, input, weight, bias, add_input, channel_scale, output_scale)
    if type(there) is Refusal:
        _check_left(layer, input, there.reason)
        return there
    offsets = weight.flatten(1, -2).permute(1, 2, 0)
    with for_framework(not _has_our_map(layer, input)):
        features = sparse_conv(input.features, offsets, there.kernel_map, bias)
    features = _apply_act(features, act_type, act_alpha, act_beta)
    count_voxels(layer, there.indices)
    return there.tensor(input, features), _name(layer)


def _place(layer, x, weight, bias, *fused) -> Place | Refusal:
    """fused: what quantised layers add and scale by."""
    if any(y is not None for y in fused):
        return Refusal("the layer is quantised, or adds another tensor")
    if (refusal := refuse(x, weight, bias)) is not None:
        return refusal
    channels = layer.in_channels, layer.out_channels
    if (x.features.shape[1], *weight.shape) != (channels[0], channels[1], *layer.kernel_size, channels[0]):
        return Refusal("the shapes do not fit")
    return place(layer, x, layer.inverse, layer.transposed)


def _check_left(layer, x, reason: str) -> None:
    if _has_our_map(layer, x):
        raise RuntimeError(
            f"{_name(layer)}: spconv has to run this layer ({reason}), but its indice_key {layer.indice_key!r} is that "
            f"of a layer which gnn_sparse_backend ran, of which its {layer.algo} can make nothing; mend the reason, "
            "give both layers algo=ConvAlgo.Native, or switch off with gnn_sparse_backend.disable('spconv')"
        )


def _has_our_map(layer, x) -> bool:
    """Whether spconv cannot run a layer: its implicit GEMM has other tables than pairs, which nobody has made where our
    layer had the key.
    """
    return layer.algo != ConvAlgo.Native and isinstance(getattr(x, "indice_dict", {}).get(layer.indice_key), SharedMap)


def _name(layer) -> str:
    return _NAMES[0 if layer.subm else 1 if layer.inverse else 2 if layer.transposed else 3]
