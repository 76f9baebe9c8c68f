"""``gsb.linear``: a linear map of features that may be sparse, or dense and mostly zeros."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ...core.operands import check_dense, common_type
from ..sparse_rows import LAYOUTS, mapped_by_nonzeros, mapped_sparse


def linear(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear`` of features that are sparse, or mostly zeros.

    A dense ``x`` without a gradient that is given again and again, as the bags of words of a data set, is mapped by its
    non-zeros from the eighth call on, if up to 12 % (8 % for results of more than 64 features) of it are no zeros. They
    are kept with the tensor until it is written to: by PyTorch's operators, for writes through NumPy or ``x.data`` are
    seen by nobody. Any other ``x`` is mapped by PyTorch. Results differ by rounding alone: where ``matrix``, or what
    flows back, is not finite, the dense product is taken, for there 0 times infinity is NaN. In layers of PyG and DGL
    maps of features as large as a layer follows take the same way.

    Args:
        x: (n, F_in), dense of any floating type, or a sparse CSR or COO tensor without a gradient, in float32, float64,
            bfloat16 or float16, whose elements that are not there meet no infinity.
        matrix: (F_out, F_in), as ``torch.nn.Linear`` has its weight, in the type of ``x``.
        bias: (F_out,) or None.

    Returns:
        (n, F_out) in the type of ``x``. Gradients of any order flow to ``matrix`` and ``bias``, and to a dense ``x``.

    Raises:
        TypeError: a sparse ``x`` has another layout, or wants a gradient, or types differ.
        ValueError: a sparse ``x`` is no matrix, or shapes do not fit it.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"linear: x must be a tensor, got {type(x).__name__}")
    if x.layout is torch.strided:
        found = mapped_by_nonzeros(x, matrix, bias)
        return functional.linear(x, matrix, bias) if found is None else found
    if x.layout not in LAYOUTS:
        raise TypeError(
            f"linear: x must be dense, sparse CSR or sparse COO, got {x.layout}; convert it to one of these"
        )
    if x.requires_grad:
        raise TypeError(
            "linear: a sparse x has no gradient here; take gsb.spmm(graph, matrix.t(), values), which has one of values"
        )
    given = {"matrix": matrix} | ({} if bias is None else {"bias": bias})
    for name, each in given.items():
        check_dense("linear", name, each)
    if x.dim() != 2 or matrix.dim() != 2 or matrix.shape[1] != x.shape[1]:
        raise ValueError(
            f"linear: x must have shape (n, F_in) and matrix (F_out, F_in), got {tuple(x.shape)} and "
            f"{tuple(matrix.shape)}"
        )
    if bias is not None and bias.shape != matrix.shape[:1]:
        raise ValueError(f"linear: bias must have shape ({matrix.shape[0]},), got {tuple(bias.shape)}")
    common_type("linear", ("x", *given), x, *given.values())
    return mapped_sparse(x, matrix, bias)
