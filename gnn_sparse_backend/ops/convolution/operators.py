"""Sparse convolution as operators.

T = sum over offsets k and pairs p of k of <X[in(p)] W[k], G[out(p)]> is linear in each operand. The operators are its
derivatives, and the gradient of each by any operand is again one of them:

    sparse_conv          by G: (outputs, F_out)              grad x: that of the transpose by W^T   grad w: the other
    sparse_conv_weight   by W: (K, groups, F_in, F_out)      grad x: that of the transpose by H^T   grad g: sparse_conv

W has the blocks on the diagonals of the matrices: (K, groups, F_in / groups, F_out / groups).
"""

from __future__ import annotations

from torch import Tensor

from ...structures.kernel_map import KernelMap
from ..core.library import TRANSPOSED
from ..core.operands import check_fit
from ..core.operator import Operator, gradients_of
from ..core.traced import Traced, owned
from .executables import conv, conv_sum


def traced_kernel_map(kernel_map: KernelMap) -> Traced:
    """What stands for a kernel map."""
    return Traced((kernel_map.inputs, kernel_map.outputs, kernel_map.indptr, *kernel_map.shape))


KERNEL_MAP = owned(
    ("Tensor inputs", "Tensor outputs", "Tensor indptr", "SymInt num_outputs", "SymInt num_inputs"),
    traced_kernel_map,
    KernelMap,
    lambda inputs, outputs, indptr, *shape: KernelMap.from_pairs(inputs, outputs, indptr, shape),
)


_BY = {
    "x": lambda kernel_map, x, w, g: CONV(kernel_map.transpose(), (g, w.transpose(2, 3))),
    "w": lambda kernel_map, x, w, g: CONV_WEIGHT(kernel_map, (x, g), (w.shape[1],)),
    "g": lambda kernel_map, x, w, g: CONV(kernel_map, (x, w)),
}
"""T differentiated by each of its operands. A shape alone is read of the operand that it is differentiated by."""


def _check_conv(kernel_map: KernelMap, operands, attributes):
    x, w = operands
    fits = w.dim() == 4 and w.shape[0] == kernel_map.num_offsets
    fits = fits and x.shape == (kernel_map.shape[1], w.shape[1] * w.shape[2])
    check_fit("sparse_conv", kernel_map, fits and w.dtype is x.dtype, x, w)
    return operands


def _check_weight(kernel_map: KernelMap, operands, attributes):
    (x, g), (groups,) = operands, attributes
    fits = x.dim() == g.dim() == 2 and (g.shape[0], x.shape[0]) == kernel_map.shape
    fits = fits and groups > 0 and not x.shape[1] % groups and not g.shape[1] % groups
    check_fit("sparse_conv_weight", kernel_map, fits and g.dtype is x.dtype, x, g)
    return operands


def _like(arguments, operands, attributes, transposed: bool) -> Tensor:
    x, w = operands
    return x.new_empty((arguments[4] if transposed else arguments[3], w.shape[1] * w.shape[3]))


def _like_weight(arguments, operands, attributes, transposed: bool) -> Tensor:
    (x, g), (groups,) = operands, attributes
    return x.new_empty((arguments[2].shape[0] - 1, groups, x.shape[1] // groups, g.shape[1] // groups))


CONV = Operator(
    "sparse_conv",
    lambda kernel_map, operands, attributes: conv(kernel_map, *operands),
    gradients_of(_BY, "xw", "g"),
    structure=KERNEL_MAP,
    operands="Tensor x, Tensor w",
    attributes="bool transposed",
    **TRANSPOSED,
    like=_like,
    check=_check_conv,
)
"""Operands: x (inputs, F_in), w (K, groups, F_in / groups, F_out / groups), in any strides."""
CONV_WEIGHT = Operator(
    "sparse_conv_weight",
    lambda kernel_map, operands, attributes: conv_sum(kernel_map, *operands, *attributes),
    gradients_of(_BY, "xg", "w"),
    structure=KERNEL_MAP,
    operands="Tensor x, Tensor g",
    attributes="SymInt groups, bool transposed",
    **TRANSPOSED,
    like=_like_weight,
    check=_check_weight,
)
"""Operands: x (inputs, F_in), g (outputs, F_out). Attributes: (groups,)."""
