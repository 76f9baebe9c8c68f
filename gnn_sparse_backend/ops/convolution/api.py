"""``gsb.sparse_conv``: convolution over the pairs of a kernel map."""

from __future__ import annotations

from torch import Tensor

from ...structures.checks import check_count
from ...structures.kernel_map import KernelMap
from ..core.operands import autocasts, is_plain, product_operands
from ..core.signatures import signature_of
from ..core.traced import Traced
from .operators import CONV, traced_kernel_map


def sparse_conv(
    features: Tensor, weight: Tensor, kernel_map: KernelMap, bias: Tensor | None = None, groups: int = 1
) -> Tensor:
    """``out[i] = bias + sum over the pairs (j, i) of every offset k of features[j] @ weight[k]``.

    A convolution of the sites that exist (Graham et al., Submanifold sparse convolutional networks, 2018; Choy et al.,
    4D spatio-temporal ConvNets, 2019): submanifold, strided, transposed or generative, as the map says. Nothing of the
    size of the pairs times a width is stored.

    Args:
        features: (inputs of the map, C_in) in float32, float64, bfloat16 or float16.
        weight: (offsets of the map, C_in / groups, C_out), of the type of ``features``. Offsets are those of the
            kernel, its last dimension fastest, and are cross-correlated, as by ``torch.nn.functional.conv3d``.
        kernel_map: which input meets which output at which offset, as a layer of ``gnn_sparse_backend.nn`` makes it, or
            ``KernelMap.from_pairs``.
        bias: None, or (C_out,).
        groups: channels [g C_out / groups, (g + 1) C_out / groups) are made of the g-th part of the channels of
            ``features``; C_in for a depthwise convolution.

    Returns:
        (outputs of the map, C_out), contiguous, in the type of ``features``; rows without pairs are the bias, or zeros.
        Sums are accumulated in at least float32. The bits are the same at every run and for any number of threads.
        Gradients of any order flow to features, weight and bias. Under autocast the operands are cast to its type, as
        those of convolutions are. Works under ``torch.compile`` without a graph break.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: a shape or device does not fit.
    """
    if isinstance(kernel_map, Traced):  # of a layer that is traced
        given = {"features": features, "weight": weight, **({} if bias is None else {"bias": bias})}
        features, weight, *of_bias = product_operands("sparse_conv", "kernel map", features.device, given)
        return _with_bias(CONV(kernel_map, (features, _blocks(weight, groups))), of_bias[0] if of_bias else None)
    if not isinstance(kernel_map, KernelMap):
        raise TypeError(
            f"sparse_conv: kernel_map must be a gsb.KernelMap, got {type(kernel_map).__name__}; layers of "
            "gnn_sparse_backend.nn make one from coordinates, KernelMap.from_pairs of arrays"
        )
    groups = check_count("sparse_conv: groups", groups)
    signature = signature_of(("sparse_conv", groups), (features, weight, bias))
    if signature is not None and signature in kernel_map.calls and not autocasts(features):
        return _with_bias(CONV(kernel_map, (features, _blocks(weight, groups))), bias)
    given = {"features": features, "weight": weight, **({} if bias is None else {"bias": bias})}
    features, weight, *of_bias = product_operands("sparse_conv", "kernel map", kernel_map.device, given)
    bias = of_bias[0] if of_bias else None
    _check_sizes(features, weight, bias, kernel_map, groups)
    if signature is not None:
        kernel_map.calls.keep(signature, True)
    structure = kernel_map if is_plain(features, weight, bias) else traced_kernel_map(kernel_map)
    return _with_bias(CONV(structure, (features, _blocks(weight, groups))), bias)


def _blocks(weight: Tensor, groups: int) -> Tensor:
    """The blocks on the diagonal of each matrix: (K, groups, C_in / groups, C_out / groups)."""
    return weight.unflatten(2, (groups, -1)).transpose(1, 2) if groups > 1 else weight.unsqueeze(1)


def _with_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias


def _check_sizes(features: Tensor, weight: Tensor, bias: Tensor | None, kernel_map: KernelMap, groups: int) -> None:
    if features.dim() != 2 or features.shape[0] != kernel_map.shape[1]:
        raise ValueError(
            f"sparse_conv: features must have shape (inputs, C_in) with {kernel_map.shape[1]} inputs, the rows of "
            f"{kernel_map!r}, got {tuple(features.shape)}"
        )
    if weight.dim() != 3 or weight.shape[0] != kernel_map.num_offsets:
        raise ValueError(
            f"sparse_conv: weight must have shape (offsets, C_in / groups, C_out) with {kernel_map.num_offsets} "
            f"offsets, those of {kernel_map!r}, got {tuple(weight.shape)}"
        )
    c_in, c_out = features.shape[1], weight.shape[2]
    if groups < 1 or c_in % groups or c_out % groups:
        raise ValueError(f"sparse_conv: groups must divide {c_in} and {c_out} channels, got {groups}")
    if weight.shape[1] * groups != c_in:
        raise ValueError(
            f"sparse_conv: features {tuple(features.shape)} in {groups} groups want weight of shape "
            f"({kernel_map.num_offsets}, {c_in // groups}, C_out), got {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != (c_out,):
        raise ValueError(
            f"sparse_conv: bias must have shape ({c_out},), one per output channel, got {tuple(bias.shape)}"
        )
