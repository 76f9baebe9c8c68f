"""``RelGraphConv`` of DGL: the message, a product with the matrix of the edge's relation, and its sum, in one operator.

The layer's ``forward`` stays DGL's. What is taken over is its ``update_all``: a message that is the layer's own method,
summed. DGL gathers a row for every edge, multiplies it, and adds up what comes out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dgl.core import is_builtin
from torch import Tensor

from ...deferred import later
from ...ops.core.executable import OutOfRange
from ...ops.core.operands import autocasts
from ..core.modules import is_untouched
from ..core.refusal import PASS, Refusal
from ..few.listed import is_list
from ..scopes import transformed
from .lazy_edges import computed
from .operands import is_index, refuse
from .relations import typed_edges
from .structure import edges_of

if TYPE_CHECKING:
    from ...ops.relational import api, few
else:
    api = later(__name__, "...ops.relational.api")
    few = later(__name__, "...ops.relational.few")

_LAYER = "dgl.nn.pytorch.conv.relgraphconv"


def message_passing(g, mfunc, rfunc, afunc):
    """``dgl.core.message_passing`` of ``RelGraphConv`` in one operator."""
    layer = _layer_of(mfunc)
    return PASS if layer is None else _sums(layer, g, rfunc, afunc)


def _layer_of(mfunc):
    """The layer whose message this is."""
    module = sys.modules.get(_LAYER)
    if module is None or getattr(mfunc, "__func__", None) is not module.RelGraphConv.message:
        return None
    return mfunc.__self__


def _sums(layer, g, rfunc, afunc) -> tuple[dict[str, Tensor], str] | Refusal:
    if afunc is not None or not is_builtin(rfunc) or rfunc.name != "sum" or rfunc.msg_field != "m":
        return Refusal("the messages are not just summed")
    h, types = g.srcdata.get("h"), g.edata.get("etype")
    if isinstance(h, Tensor):
        h = computed(h, "rgms")
    if (refusal := refuse(h)) is not None:
        return refusal
    weight = _weight(layer.linear_r, h)
    if type(weight) is Refusal:
        return weight
    norm = g.edata.get("norm")
    if norm is not None:
        norm = computed(norm, "rgms")
        if refuse(norm) is not None or norm.dtype is not h.dtype or norm.shape != (g.num_edges(), 1):
            return Refusal("norm is not one number per edge of the features' type")
    if not is_index(types) or types.device != h.device:
        return Refusal("the edge types are no vector of integers")
    if g.num_edges() == 0:
        return Refusal("no edges")
    found = _of_few(g, h, weight, types, norm)
    if found is not None:
        return {rfunc.out_field: found}, "rgms"
    try:
        relations = typed_edges(g, types, layer.linear_r.num_types)
    except ValueError:
        return Refusal("an edge type is out of range")
    if relations is None:
        return Refusal("several edge types")
    return {rfunc.out_field: api.rgms(relations, h, weight, norm)}, "rgms"


def _of_few(g, h: Tensor, weight, types: Tensor, norm: Tensor | None) -> Tensor | None:
    """The sum on a graph of a few edges; None on others."""
    edges = edges_of(g._graph, h) if is_list(types, 1) and transformed() is None else None
    if edges is None or autocasts(h) or types.shape != edges.row.shape:
        return None
    try:
        return few.few_relations(h, weight, *edges.read(), types, edges.shape, "sum", norm)
    except OutOfRange:
        return None


def _weight(linear, h: Tensor):
    """The matrices of a ``TypedLinear`` as ``rgms`` takes them."""
    module = sys.modules[_LAYER]
    if type(linear) is not module.TypedLinear or not is_untouched(linear):
        return Refusal("the linear layer is the user's, or has hooks")
    w = linear.W
    if refuse(w) is not None or w.dtype is not h.dtype:
        return Refusal("operands of two types or devices")
    if h.dim() != 2 or h.shape[1] != linear.in_size:
        return Refusal("the shapes do not fit")
    if linear.regularizer is None:
        return w
    if linear.regularizer == "basis":
        return linear.coeff, w
    if linear.regularizer == "bdd":
        return w.view(linear.num_types, linear.num_bases, linear.submat_in, linear.submat_out)
    return Refusal("unknown regularizer")
