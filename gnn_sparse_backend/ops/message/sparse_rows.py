"""Linear maps of rows that are mostly zeros, as sums of the rows of a matrix: of features that stay as they are.

    x W^T = sum over the non-zeros x[i, k] of x[i, k] W^T[k]

Node features such as bags of words have one non-zero in a hundred places. Where a tensor without a gradient is mapped
again and again, its non-zeros are found once and kept with it, as long as nobody writes to it; the map is then an
aggregation over them, and so is the gradient of W. Finding them takes as long as several dense maps, so that the first
calls stay dense, and what is made anew for each step, as the output of a rectifier, does always
(docs/decisions/sparse-features.md). Morphling (arXiv 2512.01678) chooses by density alike, once before training.

A zero times an infinity is NaN in a dense product: where the matrix, or what flows back, is not finite, it is one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import field

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.weak import WeakIdKeyDictionary

from ...frozen import dataclass
from ...runtime.devices import on_cpu
from ...runtime.type_names import accumulator_of
from ...structures.checks import FLOATING
from ...structures.graph import Graph
from ..core.transforms import transformed
from .message_op import WEIGHTED_SUM_OF_COLUMNS
from .operators import aggregate

FOUND_AT = 8
"""The call with a tensor from which on its non-zeros are looked for: finding them takes as long as that many maps."""
LEAST = 1 << 22
"""Multiply-adds of a dense product below which it is left alone."""
NARROW, DENSEST_NARROW, DENSEST = 64, 0.12, 0.08
"""Shares of non-zeros up to which an aggregation is faster, forward and back: to ``NARROW`` features, and to more."""
SAMPLED = 128
"""Rows that are looked at before all are."""


@dataclasses.dataclass(slots=True)
class SparseRows:
    """A matrix by its non-zeros: graph of shape (rows, columns), and values, one for each of its edges."""

    graph: Graph
    values: Tensor

    @property
    def density(self) -> float:
        """Share of elements that are kept."""
        rows, columns = self.graph.shape
        return self.graph.num_edges / max(rows * columns, 1)


@dataclasses.dataclass(slots=True)
class _Known:
    """What is known of a tensor at a version of it. why: it is not taken by its non-zeros, in words."""

    version: int
    calls: int = 0
    rows: SparseRows | None = None
    why: str = field(default="its non-zeros are not looked for yet")


_known: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _current(x: Tensor) -> _Known | None:
    """What is known of a tensor as it is now."""
    known = _known.get(x)
    return known if known is not None and known.version == x._version else None


def _paying(known: _Known | None, features: int) -> SparseRows | None:
    """The non-zeros, where they are known and an aggregation over them is faster for this number of features."""
    rows = None if known is None else known.rows
    return rows if rows is not None and rows.density <= densest(features) else None


def refusal(x: Tensor, features: int) -> str | None:
    """Why a dense tensor is no candidate, whatever it holds; None where it is one. features: of the result."""
    if x.requires_grad or x.grad_fn is not None:
        return "it has a gradient, and is made anew for each step"
    if x.dim() != 2 or x.dtype not in FLOATING or x.layout is not torch.strided or not on_cpu(x.device):
        return "it is no matrix of numbers on a CPU"
    if x.numel() * features < LEAST:
        return f"a product of fewer than {LEAST:,} multiply-adds is as fast"
    if x.is_inference():
        return "nobody knows when an inference tensor is written to"
    return None


def sparse_rows(x: Tensor, features: int) -> SparseRows | None:
    """The non-zeros of a tensor that was mapped as it is before, if that pays for this many features of the result.

    A call is counted. None is a matter of some comparisons.
    """
    if refusal(x, features) is not None:
        return None
    known = _current(x)
    if known is None:
        known = _known[x] = _Known(x._version)
    known.calls += 1
    if known.calls == FOUND_AT:
        _look(x, known)
    return _paying(known, features)


def why_dense(x: Tensor, features: int) -> str:
    """Why a tensor is mapped as a dense one, or that it is not, in words. Counts no call."""
    if (reason := refusal(x, features)) is not None:
        return reason
    known = _current(x)
    if known is None:
        return f"it was not mapped before; its non-zeros are looked for in call {FOUND_AT}"
    if known.rows is None:
        return known.why
    share = known.rows.density
    if _paying(known, features) is None:
        return f"{share:.1%} of it are no zeros, and up to {densest(features):.0%} pay for {features} features"
    return f"it is mapped by its non-zeros, {share:.1%} of it"


@dataclass(frozen=True)
class FeaturesExplanation:
    """How a linear map takes a matrix of features; prints as text.

    shape: of the features. width: of the result. nonzeros: share of elements that are no zeros. by_nonzeros: whether
    the next map is by them. reason: why, or why not, in words.
    """

    shape: tuple[int, int]
    width: int
    nonzeros: float
    by_nonzeros: bool
    reason: str

    def __str__(self) -> str:
        rows, columns = self.shape
        how = "its non-zeros" if self.by_nonzeros else "a dense product"
        return (
            f"linear map of {rows:,} rows of {columns:,} features, {self.nonzeros:.1%} of them no zeros, to "
            f"{self.width:,}: by {how}\nwhy: {self.reason}\n"
        )


def explain_features(x: Tensor, width: int) -> FeaturesExplanation:
    """``gsb.explain(x, "linear", width)``: whether a map of x goes by its non-zeros, and why. Counts no call."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(f"explain: features must be the width of the result, a positive whole number, got {width!r}")
    shape, elements = (x.shape[0], x.shape[1]), max(x.numel(), 1)
    if x.layout in LAYOUTS:
        stored = x.values() if x.layout is torch.sparse_csr else x.coalesce().values()
        return FeaturesExplanation(shape, width, stored.numel() / elements, True, "it is a sparse tensor")
    nonzeros = int(x.detach().count_nonzero()) / elements
    by_nonzeros = refusal(x, width) is None and _paying(_current(x), width) is not None
    return FeaturesExplanation(shape, width, nonzeros, by_nonzeros, why_dense(x, width))


def densest(features: int) -> float:
    """The share of non-zeros up to which an aggregation of this many features is the faster map."""
    return DENSEST_NARROW if features <= NARROW else DENSEST


def _look(x: Tensor, known: _Known) -> None:
    """Find the non-zeros of a tensor, where some of its rows have few."""
    some = x.detach()[:: max(1, x.shape[0] // SAMPLED)]
    share = int(some.count_nonzero()) / max(some.numel(), 1)
    if share > DENSEST_NARROW * 1.25:
        known.why = f"about {share:.1%} of it are no zeros, and up to {DENSEST_NARROW:.0%} pay"
        return
    row, column = x.detach().nonzero(as_tuple=True)
    known.rows = SparseRows(Graph.from_coo(row, column, tuple(x.shape)), x.detach()[row, column])


def rows_of_sparse(x: Tensor) -> SparseRows:
    """A sparse CSR or COO tensor as a graph and its values, kept with the tensor."""
    known = _current(x)
    if known is not None and known.rows is not None:
        return known.rows
    given = x.detach()
    if given.layout is torch.sparse_csr:
        graph = Graph.from_csr(given.crow_indices(), given.col_indices(), tuple(x.shape))
    else:
        given = given.coalesce()
        graph = Graph.from_coo(*given.indices(), tuple(x.shape))
    rows = SparseRows(graph, given.values())
    _known[x] = _Known(x._version, 0, rows)
    return rows


def is_finite(x: Tensor) -> bool:
    """Whether all numbers of a tensor are finite; False of some whose sum is not, too."""
    return math.isfinite(x.detach().sum(dtype=accumulator_of(x.dtype)).item())


class _Map(Function):
    """``x W^T`` by the non-zeros of x. x: None of a sparse tensor, whose other elements are no zeros of a product."""

    @staticmethod
    def forward(ctx, x: Tensor | None, weight: Tensor, rows: SparseRows) -> Tensor:
        ctx.rows = rows
        ctx.save_for_backward(x, weight)
        return aggregate(WEIGHTED_SUM_OF_COLUMNS, rows.graph, weight.t(), rows.values)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        (x, _), rows = ctx.saved_tensors, ctx.rows
        if x is not None and not is_finite(grad):
            return None, grad.t() @ x, None
        found = aggregate(WEIGHTED_SUM_OF_COLUMNS, rows.graph.transpose(), grad, rows.values)
        return None, found.t(), None


def mapped_by_nonzeros(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """``linear(x, weight, bias)`` by the non-zeros of x, where they are known and that is the faster way; else None.

    The result is that of the dense product but for rounding, those of infinite and undefined numbers included.
    """
    if weight.dim() != 2 or weight.layout is not torch.strided or x.dim() != 2 or x.shape[1] != weight.shape[1]:
        return None
    if (
        x.dtype is not weight.dtype
        or (bias is not None and bias.dtype is not x.dtype)
        or torch.is_autocast_enabled("cpu")
    ):
        return None
    if torch.compiler.is_compiling() or transformed():
        return None
    rows = sparse_rows(x, weight.shape[0])
    if rows is None or not is_finite(weight):
        return None
    return biased(_mapped(x, weight, rows), bias)


def mapped_sparse(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``linear`` of a sparse CSR or COO tensor, whose elements that are not there meet no infinity."""
    return biased(_mapped(None, weight, rows_of_sparse(x)), bias)


def _mapped(x: Tensor | None, weight: Tensor, rows: SparseRows) -> Tensor:
    if weight.requires_grad and torch.is_grad_enabled():
        mapped: Tensor = _Map.apply(x, weight, rows)
        return mapped
    return aggregate(WEIGHTED_SUM_OF_COLUMNS, rows.graph, weight.t(), rows.values)


def biased(out: Tensor, bias: Tensor | None) -> Tensor:
    """The rows with a bias added to each."""
    return out if bias is None else out + bias


LAYOUTS: Sequence[torch.layout] = (torch.sparse_csr, torch.sparse_coo)
"""Sparse layouts that are taken."""
