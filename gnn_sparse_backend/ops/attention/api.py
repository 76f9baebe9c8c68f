"""``gsb.attention``, ``gat_attention`` and ``gatv2_attention``: the attention of graph transformers, GAT and GATv2.

All three are ``attend`` with a score of their own. Nothing of the size edges x features is stored, forward or backward.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...runtime.type_names import accumulator_of
from ...structures.graph import Graph
from ..core.operands import check_dense, check_graph, check_traced, common_type, is_plain
from ..core.partitioned import Partitioned, placed
from ..core.signatures import prepared_call
from ..core.traced import traced_graph
from ..message.checks import check_message_rows
from ..message.message_op import MessageText, message_op
from .attention import Attention
from .operators import ATTEND, AttentionText

_DOT = "mul(mul(x0, x1), x2)", ("row", "column", "all")
_VALUE = "x0", ("column",)
_WEIGHTED_VALUE = "mul(x0, x1)", ("column", "edge")


@placed(u="key value", v="query", e="edge_weight")
def attention(
    graph: Graph | Partitioned,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    *,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """Dot-product attention of every destination to its sources, as a graph transformer has it (Shi et al., 2021).

        out[i] = sum over the edges e into i of softmax(scale * <query[i], key[src(e)]>) * value[src(e)]

    Args:
        graph: structure of shape (n_dst, n_src).
        query: (n_dst, H, D), or (n_dst, D) for one head.
        key: (n_src, H, D), or (n_src, D).
        value: (n_src, H, Dv), or (n_src, Dv); Dv may differ from D.
        scale: None for ``1 / sqrt(D)``.
        edge_weight: None, or (E, H), with one head (E,), in the user's edge order: multiplies the weight of each edge
            after the softmax. Dropout of attention weights is ``torch.nn.functional.dropout(torch.ones(E, H), p)``.

    Tensors are float32, float64, bfloat16 or float16, all of one type, of any strides; half types are computed in
    float32.

    Returns:
        (n_dst, H, Dv), or (n_dst, Dv), contiguous, in the type of the operands. A destination without edges is 0; one
        whose scores are all -inf, or hold a NaN or +inf, is NaN. Weighted sums are divided at the end, so that values
        within a factor of about 3000 times the in-degree of their type's largest number may overflow. Gradients of any
        order flow to all tensors. Autocast and ``torch.compile`` as in ``spmm``.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: a shape or device does not fit the graph or another operand, or ``scale`` is not a number.
    """
    if isinstance(graph, Partitioned):
        return graph.call(attention, locals())
    name = "attention"
    check_graph(name, graph)
    signature = None
    if scale is None:
        given, signature, known = _known(graph, (name,), (query, key, value), edge_weight)
        if known is not None:
            return known(graph, given)
    inner = _check_both(name, ("query", "key"), (query, key), _check_value(name, value))
    if scale is not None and _as_float(scale) is None:
        raise ValueError(f"{name}: scale must be a number or None, got {scale!r}")
    names, operands = ("query", "key", "value"), (query, key, value)
    query, key, value, edge_weight = _one_type(name, graph, names, ("row", "column", "column"), operands, edge_weight)
    if scale is None:  # known with the width: a number of the program
        return _attend(graph, signature, _scaled_dot(inner), (query, key), value, edge_weight, True)
    wide = accumulator_of(query.dtype)
    score = torch.full((), float(scale), dtype=wide, device=query.device)
    return _attend(graph, signature, _DOT, (query, key, score), value, edge_weight, True)


@placed(u="src_scores value", v="dst_scores", e="edge_scores edge_weight")
def gat_attention(
    graph: Graph | Partitioned,
    dst_scores: Tensor,
    src_scores: Tensor,
    value: Tensor,
    negative_slope: float = 0.2,
    *,
    edge_scores: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """The attention of GAT (Velickovic et al., 2018): the score of an edge is a sum of scores of its ends.

        out[i] = sum over the edges e into i of softmax(leaky_relu(dst_scores[i] + src_scores[src(e)])) * value[src(e)]

    Args:
        graph: structure of shape (n_dst, n_src).
        dst_scores: (n_dst, H), or (n_dst,) for one head.
        src_scores: (n_src, H), or (n_src,).
        value: (n_src, H, D), or (n_src, D) for one head.
        negative_slope: of the leaky ReLU.
        edge_scores: None, or (E, H), with one head (E,): added to the sum before the leaky ReLU.
        edge_weight: as in ``attention``.

    Returns:
        (n_dst, H, D), or (n_dst, D), as ``attention``.

    Raises:
        TypeError, ValueError: as ``attention``.
    """
    if isinstance(graph, Partitioned):
        return graph.call(gat_attention, locals())
    name = "gat_attention"
    check_graph(name, graph)
    slope = _slope(name, negative_slope)
    names, operands, places = ["dst_scores", "src_scores"], [dst_scores, src_scores], ["row", "column"]
    if edge_scores is not None:
        names, operands, places = [*names, "edge_scores"], [*operands, edge_scores], [*places, "edge"]
    given, signature, known = _known(graph, (name, slope, len(operands)), (*operands, value), edge_weight)
    if known is not None:
        return known(graph, given)
    shape = _check_value(name, value)
    for label, x in zip(names, operands):
        _check_per_head(name, label, x, shape)
    *operands, value, edge_weight = _one_type(
        name, graph, (*names, "value"), (*places, "column"), (*operands, value), edge_weight
    )
    total = "add(x0, x1)" if edge_scores is None else "add(add(x0, x1), x2)"
    score = f"leaky_relu({total}, {slope!r})", tuple(places)
    return _attend(graph, signature, score, operands, value, edge_weight, False, tuple(range(len(operands))))


@placed(u="x_src value", v="x_dst", e="edge_weight")
def gatv2_attention(
    graph: Graph | Partitioned,
    x_dst: Tensor,
    x_src: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    *,
    value: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """The attention of GATv2 (Brody et al., 2022): a learned vector looks at the sum of both ends' features.

        out[i] = sum over the edges e into i of softmax(<att, leaky_relu(x_dst[i] + x_src[src(e)])>) * value[src(e)]

    Args:
        graph: structure of shape (n_dst, n_src).
        x_dst: (n_dst, H, D), or (n_dst, D) for one head.
        x_src: (n_src, H, D), or (n_src, D).
        att: (H, D), or (D,).
        negative_slope: of the leaky ReLU.
        value: None for ``x_src``, or (n_src, H, Dv), or (n_src, Dv).
        edge_weight: as in ``attention``.

    Returns:
        (n_dst, H, Dv), or (n_dst, Dv), as ``attention``.

    Raises:
        TypeError, ValueError: as ``attention``.
    """
    if isinstance(graph, Partitioned):
        return graph.call(gatv2_attention, locals())
    name = "gatv2_attention"
    check_graph(name, graph)
    slope = _slope(name, negative_slope)
    value = x_src if value is None else value
    given, signature, known = _known(graph, (name, slope), (x_dst, x_src, att, value), edge_weight)
    if known is not None:
        return known(graph, given)
    _check_both(name, ("x_dst", "x_src"), (x_dst, x_src), _check_value(name, value))
    check_dense(name, "att", att)
    if tuple(att.shape) != tuple(x_src.shape[1:]):
        raise ValueError(
            f"{name}: att must have shape {tuple(x_src.shape[1:])}, the features of x_src, got {tuple(att.shape)}"
        )
    names, places = ("x_dst", "x_src", "att", "value"), ("row", "column", "all", "column")
    *score, value, edge_weight = _one_type(name, graph, names, places, (x_dst, x_src, att, value), edge_weight)
    message = f"mul(leaky_relu(add(x0, x1), {slope!r}), x2)"
    return _attend(graph, signature, (message, places[:3]), score, value, edge_weight, True)


def _known(
    graph: Graph, call: tuple, operands: tuple, edge_weight: Tensor | None
) -> tuple[tuple, tuple | None, Attention | None]:
    """(the operands that there are, the signature of the call, what ran the last one like it)."""
    given = operands if edge_weight is None else (*operands, edge_weight)
    return given, *prepared_call(graph, call, given)


def _scaled_dot(width: int) -> tuple[str, tuple[str, str]]:
    """The score of a dot product over ``width`` features, and its places. Over none it is 0, whatever the scale."""
    return f"mul(mul(x0, x1), {1.0 / math.sqrt(max(width, 1))!r})", ("row", "column")


def _slope(name: str, slope) -> float:
    number = _as_float(slope)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{name}: negative_slope must be a finite number, got {slope!r}")
    return number


def _as_float(value) -> float | None:
    """A number of the user's, None where it is none that a float can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _check_value(name: str, value) -> tuple[int, ...]:
    check_dense(name, "value", value)
    if value.dim() not in (2, 3):
        raise ValueError(
            f"{name}: value must have shape (n_src, H, D), or (n_src, D) for one head, got {tuple(value.shape)}"
        )
    return tuple(value.shape)


def _check_both(name: str, labels: tuple[str, str], ends: tuple, shape: tuple[int, ...]) -> int:
    """The last dimension of both ends, which have the heads of the value of this shape."""
    heads = None if len(shape) == 2 else shape[1]
    first, second = (_check_like(name, label, x, heads) for label, x in zip(labels, ends))
    if first != second:
        raise ValueError(
            f"{name}: {' and '.join(labels)} must have the same last dimension, got {tuple(ends[0].shape)} and "
            f"{tuple(ends[1].shape)}"
        )
    return first


def _check_like(name: str, label: str, x, heads: int | None) -> int:
    """The last dimension of x, which has the heads of the value, or none if that has none."""
    check_dense(name, label, x)
    if heads is None and x.dim() == 2:
        return x.shape[1]
    if heads is not None and x.dim() == 3 and x.shape[1] == heads:
        return x.shape[2]
    wanted = "(n, D), as value has no heads" if heads is None else f"(n, {heads}, D), with the {heads} heads of value"
    raise ValueError(f"{name}: {label} must have shape {wanted}, got {tuple(x.shape)}")


def _check_per_head(name: str, label: str, x, shape: tuple[int, ...]) -> None:
    """x has a number per head of the value, whose shape is given."""
    check_dense(name, label, x)
    wanted = shape[1:-1]
    if tuple(x.shape[1:]) != wanted or x.dim() == 0:
        text = f"(n, {wanted[0]}), one per head of value" if wanted else "(n,), as value has no heads"
        raise ValueError(f"{name}: {label} must have shape {text}, got {tuple(x.shape)}")


def _one_type(name: str, graph: Graph, names, places, operands, edge_weight: Tensor | None) -> tuple:
    """Operands and edge weight in one type; each has its rows, and is where the graph is."""
    if edge_weight is not None:
        _check_per_head(name, "edge_weight", edge_weight, tuple(operands[-1].shape))
        names, places, operands = (*names, "edge_weight"), (*places, "edge"), (*operands, edge_weight)
    operands = common_type(name, tuple(names), *operands)
    if is_plain(*operands):
        check_message_rows(name, graph, names, places, operands)
    else:  # the operator looks at rows when it runs
        check_traced(name, names, operands, graph.device)
    return operands if edge_weight is not None else (*operands, None)


def _attend(
    graph: Graph,
    signature: tuple | None,
    score,
    operands,
    value: Tensor,
    edge_weight: Tensor | None,
    reduced: bool,
    lifted: tuple[int, ...] = (),
) -> Tensor:
    """``attend`` with forms given as text and places, remembered by its signature.

    lifted: which of the operands of the score have a number for each head, and want a dimension for the sum over
    features.
    """
    weighted, values = _VALUE, (value,)
    if edge_weight is not None:
        weighted, values, lifted = _WEIGHTED_VALUE, (value, edge_weight), (*lifted, len(operands) + 1)
    given = (*operands, *values)
    if is_plain(*given):
        attention = Attention(message_op(*score), message_op(*weighted), reduced, graph, given, lifted)
        if signature is not None:
            graph.calls.keep(signature, attention)
        return attention(graph, given)
    given = [x.unsqueeze(-1) if i in lifted else x for i, x in enumerate(given)]
    text = AttentionText(MessageText(*score), MessageText(*weighted), reduced)
    return ATTEND(traced_graph(graph), given, (text,))
