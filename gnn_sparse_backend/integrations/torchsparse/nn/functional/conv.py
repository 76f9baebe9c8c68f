"""``conv3d``: a convolution of a sparse tensor."""

from __future__ import annotations

from torch import Tensor

from .....ops.convolution.api import sparse_conv
from ....core.counters import ours
from ...conventions import AXES, convention
from ...places import Layer, back, forward, generated, keep_coords
from ...tensor import SparseTensor, check_tensor
from ...utils.shapes import Axes, make_ntuple
from .conv_config import ConvConfig, config_in_force

__all__ = ["conv3d"]


def conv3d(
    input: SparseTensor,
    weight: Tensor,
    kernel_size: Axes,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    config: ConvConfig | None = None,
    transposed: bool = False,
    generative: bool = False,
    training: bool = False,
) -> SparseTensor:
    """Convolve ``input``, forward to its own or coarser sites, or ``transposed`` back to those that it came from.

    Args:
        weight: (offsets, c_in, c_out) in the order of ``get_kernel_offsets``, or (c_in, c_out) of one offset.
        bias: (c_out,) or None.
        kernel_size, stride, padding, dilation: an int, or one for each axis. The padding is that of a strided layer;
            one of stride 1 keeps the sites.
        config: a ``ConvConfig``, of which the modes of maps count.
        generative: whether a transposed layer makes all sites that its kernel reaches. torchsparse mirrors the kernel
            there, and so does this.

    Raises TypeError, ValueError: shapes do not fit, or a transposed layer has no sites to go back to.
    """
    x = check_tensor("conv3d", input)
    kernel, stride, padding, dilation = (make_ntuple(each, AXES) for each in (kernel_size, stride, padding, dilation))
    weight = weight if weight.dim() == 3 else weight[None]
    if {*kernel, *stride} == {1} and set(dilation) == {1}:
        feats = x.feats.matmul(weight[0])
        keep_coords(x)
        return x.like(feats if bias is None else feats + bias)
    modes = config_in_force(config)
    centred = convention().finest or modes.kmap_mode == "hashmap"
    layer = Layer(kernel, stride, padding, dilation, centred, centred and modes.downsample_mode == "minkowski")
    if generative and not transposed:
        raise ValueError("conv3d: generative=True is of a transposed layer: give transposed=True, too")
    name, place = ("Conv3d", forward)
    if transposed:
        name, place = ("Conv3d generative", generated) if generative else ("Conv3d transposed", back)
    to = place(x, layer)
    made = SparseTensor(sparse_conv(x.feats, weight, to.kernel_map, bias), to.coords, to.stride, to.spatial_range)
    ours("torchsparse", name)
    made._caches = x._caches
    keep_coords(made)
    return made
