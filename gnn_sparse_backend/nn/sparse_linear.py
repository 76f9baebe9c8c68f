"""A linear layer with a sparse matrix: what is left of a dense one when small weights are pruned."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter
from torch.nn import functional as F

from ..formats.composed.decompose import decompose
from ..formats.composed.decomposition import Decomposition
from ..formats.composed.registry import known_formats
from ..formats.composed.spec import SEPARATOR, parse_formats
from ..formats.counts import prefix_sums
from ..formats.structure import row_of_position
from ..ops.composed.api import checked_linear
from ..planner.composed import DENSE
from ..structures.graph import Graph
from .kept import bits_of, trained
from .read_only import ReadOnly
from .weight_format import weight_format

_HOW = (
    "SparseLinear makes its weight anew from its values, and what is written to it would be lost; write to values, or "
    "give the whole matrix to load_state_dict"
)


class SparseLinear(Module):
    """``y = x W^T + b`` with the non-zeros of W alone: ``torch.nn.Linear`` after pruning.

    Where the weights are, is fixed; their values are trained. The state dict is that of the dense layer, so either
    loads what the other has saved.

    Attributes:
        values: the weights that are kept, as a parameter. In the format ``"csr"`` (nnz,), row by row; in ``"dense"``
            (out_features, in_features), with zeros between them; in formats of blocks packed, as kernels read them
            (``gsb.formats.Decomposition.pack``). That saves moving them twice in every step. The gradient of what
            pads a block is 0, so that every optimiser that leaves a zero without a gradient alone leaves padding 0;
            who writes into ``values`` by other means sets ``weight`` through the state dict.
        bias: (out_features,), or None.
        in_features, out_features, nnz: int.
        format: ``"csr"``, ``"dense"``, or the words of formats such as ``"bsr(32)"`` or ``"bsr(32) + csr"``.
    """

    indptr: Tensor
    indices: Tensor
    _bits: Tensor
    _saved: weakref.ref[Tensor] | None = None

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        in_features: int,
        *,
        bias: bool = True,
        format: str = "auto",
        dtype: torch.dtype | None = None,
    ) -> None:
        """A layer whose row i has weights at the columns ``indices[indptr[i] : indptr[i + 1]]``, all zero.

        Raises TypeError or ValueError where these are no CSR structure without duplicates, or the format is unknown.
        """
        super().__init__()
        format = _checked_format(format)
        self.in_features, self.out_features = in_features, len(indptr) - 1
        matrix = Graph.from_csr(indptr, indices, (self.out_features, in_features))
        self.nnz = matrix.num_edges
        places = row_of_position(matrix.indptr, self.nnz, torch.int64) * in_features + matrix.indices
        if places.unique().numel() != self.nnz:
            raise ValueError("SparseLinear: an element of the matrix is named twice; name each once")
        self.format = weight_format(matrix, dtype or torch.get_default_dtype()).best if format == "auto" else format
        self.register_buffer("indptr", matrix.indptr, persistent=False)
        self.register_buffer("indices", matrix.indices, persistent=False)
        self.register_buffer("_places", places, persistent=False)
        new = {"dtype": dtype, "device": indptr.device}
        self.register_parameter("values", None)  # before the bias
        self.bias = Parameter(torch.zeros(self.out_features, **new)) if bias else None
        self._matrix = self._structure(matrix)
        shape = (self.out_features, in_features) if self._matrix is None else (self._matrix.num_slots,)
        self.values = Parameter(torch.zeros(shape, **new))
        self.register_buffer("_bits", None, persistent=False)
        self._mark()

    @classmethod
    def from_dense(cls, linear: Linear, mask: Tensor | None = None, format: str = "auto") -> SparseLinear:
        """The non-zeros of a dense layer, which is left as it is.

        Args:
            linear: a layer; one that ``torch.nn.utils.prune`` works on is taken with its mask.
            mask: (out_features, in_features), True where a weight is kept; by default where it is not zero.
            format: ``"csr"``, ``"dense"``, the words of formats as ``gsb.formats.decompose`` takes them, with ``" + "``
                between several (``"bsr(32)"``, ``"bsr(32) + csr"``), or ``"auto"``: blocks of 32, 16 or 8, CSR or
                dense, whichever is predicted to be fastest on many rows. What ``gsb.tune_format(weight, 512, dtype,
                tokens=True)`` has measured of this structure counts before predictions.

        Raises TypeError or ValueError for anything else, which is quoted.
        """
        if not isinstance(linear, Linear):
            raise TypeError(f"SparseLinear.from_dense: a torch.nn.Linear is wanted, got {type(linear).__name__}")
        weight, kept = kept_of(linear, mask)
        matrix, bias = matrix_of(kept), linear.bias
        layer = cls(
            matrix.indptr, matrix.indices, weight.shape[1], bias=bias is not None, format=format, dtype=weight.dtype
        )
        with torch.no_grad():
            layer._keep(weight)
            if bias is not None:
                layer.bias.copy_(bias)
        layer.values.requires_grad_(weight.requires_grad)
        return layer.train(linear.training)

    def to_dense(self) -> Linear:
        """The dense layer with the same weights, and zeros between them."""
        linear = Linear(
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            dtype=self.values.dtype,
            device=self.values.device,
        )
        with torch.no_grad():
            linear.weight.copy_(self._weight())
            if self.bias is not None:
                linear.bias.copy_(self.bias)
        return linear.train(self.training)

    @property
    def weight(self) -> Tensor:
        """(out_features, in_features) the matrix with its zeros, made anew from ``values``, with their gradient.

        It is to be read: RuntimeError where somebody writes to it.
        """
        return ReadOnly.of(self._weight(), _HOW)

    def _weight(self) -> Tensor:
        if self._matrix is None:
            return self._trained().view(self.out_features, self.in_features)
        values = self._matrix.unpack(self.values)
        flat = values.new_zeros(self.out_features * self.in_features)
        return flat.index_copy(0, self._places, values).view(self.out_features, self.in_features)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register as any module does. Raises TypeError where it is pruned in place, as by ``torch.nn.utils.prune``."""
        if name in ("weight", "weight_orig"):
            raise TypeError(
                "SparseLinear: it is pruned, and holds no weight of its own to be pruned; prune layer.to_dense(), and "
                "give that to SparseLinear.from_dense"
            )
        super().register_parameter(name, param)

    @property
    def density(self) -> float:
        """Share of the matrix that is kept."""
        return self.nnz / max(self.in_features * self.out_features, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        if isinstance(x, Tensor) and x.is_nested:
            raise TypeError(
                f"SparseLinear: x must be a plain tensor (..., {self.in_features}), got a nested one ({x.layout}); "
                "give its rows, those of the layout torch.jagged as x.values()"
            )
        if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[-1] != self.in_features:
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"SparseLinear: x must be (..., {self.in_features}), got {found}")
        values, bias = self._trained(owned=True) if self._matrix is None else self.values, self.bias
        if torch.is_autocast_enabled(x.device.type) and x.dtype is not torch.float64:
            dtype = torch.get_autocast_dtype(x.device.type)
            x, values, bias = x.to(dtype), values.to(dtype), None if bias is None else bias.to(dtype)
        if self._matrix is None:
            return F.linear(x, values, bias)
        if x.dtype is not values.dtype:
            raise TypeError(f"SparseLinear: x is {x.dtype}, and the weights are {values.dtype}; give both one type")
        if x.dim() == 2:
            return checked_linear(self._matrix, values, x, bias)
        y = checked_linear(self._matrix, values, x.reshape(-1, self.in_features), bias)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """The arguments that ``print`` shows."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"nnz={self.nnz} ({self.density:.1%}), format={self.format!r}"
        )

    def _structure(self, matrix: Graph) -> Decomposition | None:
        """The matrix as the product takes it."""
        if self.format == DENSE:
            return None
        self._graph = matrix  # keeps the decomposition, which compiled programs find by the graph's arrays
        return decompose(matrix, self.format.split(SEPARATOR))

    def _trained(self, owned: bool = False) -> Tensor:
        """The values of the format ``"dense"``, of which those that were pruned have no gradient."""
        values, bits = self.values, self._bits
        return trained(values, bits, owned) if torch.is_grad_enabled() and values.requires_grad else values

    def _mark(self) -> None:
        """Make what tells the weights that are kept in the format ``"dense"``."""
        if self._matrix is None:
            self._bits = bits_of(self._places, self.values)

    def _keep(self, weight: Tensor) -> None:
        """Take the values from a dense matrix."""
        kept = weight.reshape(-1)[self._places].to(self.values.dtype)
        if self._matrix is None:
            self.values.zero_()
            self.values.view(-1)[self._places] = kept
        else:
            self.values.copy_(self._matrix.pack(kept))

    def _apply(self, fn: Any, recurse: bool = True) -> SparseLinear:
        before, size = self.indices.device, self.values.element_size()
        super()._apply(fn, recurse)
        if self.values.element_size() != size:
            self._mark()
        if self.indices.device != before:
            shape = self.out_features, self.in_features
            self._matrix = self._structure(Graph.from_csr(self.indptr, self.indices, shape))
        return self

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.pop(prefix + "values", None)
        destination[prefix + "weight"] = self._weight() if keep_vars else self._saved_weight(destination)

    def _saved_weight(self, destination: dict) -> Tensor:
        """A copy of the weight; one for all places that this layer has in a model, as a dense layer would save it."""
        saved = None if self._saved is None else self._saved()
        if saved is None or not any(x is saved for x in destination.values()):
            saved = self._weight().detach().clone()
            self._saved = weakref.ref(saved)
        return saved

    def __getstate__(self) -> dict[str, Any]:
        """What was saved belongs to who saved it."""
        return {name: x for name, x in super().__getstate__().items() if name != "_saved"}

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        _, _, missing, _, errors = rest
        key, own = prefix + "weight", prefix + "values"
        weight = state_dict.get(key)
        if weight is not None:
            if tuple(weight.shape) != (self.out_features, self.in_features):
                errors.append(
                    f"{key}: the matrix must be {(self.out_features, self.in_features)}, got {tuple(weight.shape)}"
                )
                return
            beside = weight.detach().reshape(-1).clone()
            beside[self._places] = 0
            if lost := int(beside.count_nonzero()):
                errors.append(
                    f"{key}: {lost} of its non-zeros are where this layer keeps none, and would be lost; make the "
                    "layer with SparseLinear.from_dense from a layer that has this matrix"
                )
                return
            with torch.no_grad():
                self._keep(weight.to(self.values.device))
        given = {name: x for name, x in state_dict.items() if name != key} | {own: self.values.detach()}
        super()._load_from_state_dict(given, prefix, *rest)
        if weight is None:
            missing.append(key)


def _checked_format(format: object) -> str:
    """``"auto"``, ``"dense"``, or formats in words as their parser would write them."""
    if format in ("auto", DENSE):
        return str(format)
    try:
        return SEPARATOR.join(map(str, parse_formats(format.split("+"))))  # type: ignore[attr-defined]
    except (AttributeError, ValueError) as error:
        raise ValueError(
            f"SparseLinear: format must be 'auto', 'dense' or words with '+' between several; "
            f"{known_formats()}; got {format!r}"
        ) from error


def matrix_of(kept: Tensor) -> Graph:
    """The structure of the elements that are True."""
    indptr, columns = prefix_sums(kept.sum(1)), kept.nonzero(as_tuple=True)[1]
    return Graph.from_csr(indptr.to(torch.int32), columns.to(torch.int32), tuple(kept.shape))


def kept_of(linear: Linear, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weight of a layer, before what ``torch.nn.utils.prune`` does to it, and which of its elements are kept."""
    weight = linear.weight
    if isinstance(pruned := getattr(linear, "weight_mask", None), Tensor):
        weight = getattr(linear, "weight_orig", weight)
        mask = pruned if mask is None else mask
    return weight, weight.detach() != 0 if mask is None else _checked(mask, weight)


def _checked(mask: Tensor, weight: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.shape != weight.shape:
        found = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"SparseLinear.from_dense: mask must be a tensor of shape {tuple(weight.shape)}, got {found}")
    return mask.to(weight.device, torch.bool)
