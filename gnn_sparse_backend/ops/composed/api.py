"""``gsb.composed_spmm``, ``composed_sddmm`` and ``composed_linear``: products of matrices in several formats."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats.composed.decomposition import Decomposition
from ...runtime.devices import check_kernels
from ...structures.checks import FLOATING
from ..core.operands import check_dense, common_type, is_plain
from .operators import SDDMM, SPMM, Composed, traced_parts


def composed_spmm(parts: Decomposition, values: Tensor, x: Tensor, *, packed: bool = False) -> Tensor:
    """The product A x of a matrix in several formats and a dense one, for one matrix or a batch of them.

        parts = gsb.formats.decompose(weight, ["bsr(32)", "csr"])
        y = gsb.composed_spmm(parts, parts.values_of(weight), x)

    Args:
        parts: what ``gsb.formats.decompose`` made of the structure of A, (m, n).
        values: (nnz,) the values of A in the order of the matrix that was decomposed, or (batch, nnz).
        x: (n, features), or (batch, n, features), in float32, float64, bfloat16 or float16; of the type of ``values``.
        packed: ``values`` are packed as ``parts.pack(values)`` gives them, with 0 at padding.

    Returns:
        (m, features) or (batch, m, features). Half types are accumulated in float32. Gradients of any order flow to
        ``values`` and ``x``. An infinity or NaN of ``x`` reaches no row that has no non-zero there.

    Raises:
        TypeError, ValueError: quoting an operand that does not fit.
    """
    what = "composed_spmm"
    values, x = _operands(what, parts, values, x, packed)
    columns = parts.shape[1]
    if x.dim() not in (2, 3) or x.shape[-2] != columns:
        raise ValueError(f"{what}: x must be ({columns}, features) or (batch, {columns}, features), got {_shape(x)}")
    if values.dim() not in (1, 2):
        raise ValueError(f"{what}: values must be (nnz,) or (batch, nnz), got {_shape(values)}")
    if values.dim() == 2 or x.dim() == 3:
        batch = x.shape[0] if x.dim() == 3 else values.shape[0]
        if values.dim() == 2 and values.shape[0] != batch:
            raise ValueError(f"{what}: values are a batch of {values.shape[0]}, and x is one of {batch}")
        values, x = values.expand(batch, -1), x.expand(batch, -1, -1)
    return SPMM(_structure(parts, values, x), (values, x, None), (False,))


def composed_linear(
    parts: Decomposition, values: Tensor, x: Tensor, bias: Tensor | None = None, *, packed: bool = False
) -> Tensor:
    """The product x A^T of a dense matrix and one in several formats, as ``torch.nn.functional.linear`` has it.

    Args:
        parts: of the structure of A, (out_features, in_features). values, packed: as of `composed_spmm`, of one matrix.
        x: (..., in_features), any leading dimensions.
        bias: (out_features,), added to every row, of the type of ``x``; None: nothing is.

    Returns:
        (..., out_features). Blocks with rows that fill vectors are read as they are; other formats go through a
        transposed copy of ``x``. Gradients, types and errors are as of `composed_spmm`.
    """
    what = "composed_linear"
    values, x = _operands(what, parts, values, x, packed)
    if not x.dim() or x.shape[-1] != parts.shape[1]:
        raise ValueError(f"{what}: x must be (..., {parts.shape[1]}), got {_shape(x)}")
    if values.dim() != 1:
        raise ValueError(f"{what}: values must be (nnz,), got {_shape(values)}")
    if bias is not None:
        check_dense(what, "bias", bias)
        values, x, bias = common_type(what, ("values", "x", "bias"), values, x, bias)
        if tuple(bias.shape) != parts.shape[:1]:
            raise ValueError(f"{what}: bias must be ({parts.shape[0]},), got {_shape(bias)}")
        if bias.device != parts.device:
            raise ValueError(f"{what}: the structure is on {parts.device} and bias on {bias.device}")
    flat = x.flatten(0, -2) if x.dim() > 1 else x[None]
    given = (values, flat) if bias is None else (values, flat, bias)
    y = SPMM(_structure(parts, *given), (values, flat, bias), (True,))
    if x.dim() == 1:
        return y[0]
    return y.unflatten(0, x.shape[:-1]) if x.dim() > 2 else y


def checked_linear(parts: Decomposition, packed: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    """`composed_linear` of a layer, which has checked shapes, and that ``packed`` and ``x``, (tokens, in_features),
    have one type: small products take no longer than these checks. Whatever is unusual goes there.
    """
    usual = x.dtype in FLOATING and x.layout is torch.strided and x.device == parts.device and x.is_cpu
    if bias is None:
        usual = usual and is_plain(packed, x)
    else:
        usual = usual and bias.dtype is x.dtype and is_plain(packed, x, bias)
    if usual:
        found: Tensor = SPMM(Composed(parts), (packed, x, bias), (True,))
        return found
    return composed_linear(parts, packed, x, bias, packed=True)


def composed_sddmm(parts: Decomposition, u: Tensor, v: Tensor, *, packed: bool = False) -> Tensor:
    """The products of rows of u and of v at the non-zeros: out[e] = sum over k of u[row(e), k] v[column(e), k].

    Args:
        parts: of the structure, (m, n).
        u, v: (m, features) and (n, features), or a batch of both, of one type.
        packed: give the result packed.

    Returns:
        (nnz,) or (batch, nnz) in the order of the matrix that was decomposed; packed (..., num_slots), 0 at padding.
        Gradients, types and errors are as of `composed_spmm`.
    """
    what = "composed_sddmm"
    _check_parts(what, parts)
    for name, operand, length in (("u", u, parts.shape[0]), ("v", v, parts.shape[1])):
        check_dense(what, name, operand)
        if operand.dim() not in (2, 3) or operand.shape[-2] != length:
            raise ValueError(f"{what}: {name} must be (..., {length}, features), got {_shape(operand)}")
    u, v = common_type(what, ("u", "v"), u, v)
    _check_types(what, parts, u)
    if u.shape[-1] != v.shape[-1] or u.shape[:-2] != v.shape[:-2]:
        raise ValueError(f"{what}: u {_shape(u)} and v {_shape(v)} must have the same features and batch")
    found = SDDMM(_structure(parts, u, v), (u, v), (False,))
    return found if packed else parts.unpack(found)


def _operands(what: str, parts: Decomposition, values: Tensor, x: Tensor, packed: bool) -> tuple[Tensor, Tensor]:
    _check_parts(what, parts)
    check_dense(what, "values", values)
    check_dense(what, "x", x)
    values, x = common_type(what, ("values", "x"), values, x)
    _check_types(what, parts, x)
    count, name = (parts.num_slots, "num_slots") if packed else (parts.nnz, "nnz")
    if not values.dim() or values.shape[-1] != count:
        raise ValueError(f"{what}: values must end in {name} = {count}, got {_shape(values)}")
    return (values if packed else parts.pack(values)), x


def _check_parts(what: str, parts: object) -> None:
    if not isinstance(parts, Decomposition):
        raise TypeError(
            f"{what}: expected a Decomposition as gsb.formats.decompose makes it, got {type(parts).__name__}"
        )


def _check_types(what: str, parts: Decomposition, x: Tensor) -> None:
    if x.dtype not in FLOATING:
        raise TypeError(f"{what}: operands must be float32, float64, bfloat16 or float16, got {x.dtype}")
    if x.device != parts.device:
        raise ValueError(f"{what}: the structure is on {parts.device} and an operand on {x.device}")
    check_kernels(what, x.device)


def _structure(parts: Decomposition, *operands: Tensor) -> Any:
    composed = Composed(parts)
    return composed if is_plain(*operands) else traced_parts(composed)


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
