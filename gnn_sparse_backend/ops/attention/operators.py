"""Attention and the softmax over edges as operators.

    gsb::edge_softmax            transposed: over the edges out of each source
    gsb::edge_softmax_backward   the gradient, from the softmax and its cotangent
    gsb::attend                  the operands of the score, then those of the value; beside the result the two numbers
                                 of each row and score from which the weights of edges can be had again
    gsb::attend_backward         the gradients of the operands that are ``needed``

The backward pass of attention is two passes over the edges; where it is to be differentiated again, it is that of the
aggregations, edge maps and softmax that attention is composed of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...deferred import later
from ...runtime.devices import check_kernels
from ...runtime.type_names import accumulator_of
from ...structures.checks import plain_tensor
from ...structures.graph import Graph
from ..core.library import TRANSPOSED
from ..core.operands import check_dense, check_rows
from ..core.operator import Operator
from ..core.traced import GRAPH, Traced
from ..core.transforms import differentiated_again, pulled_back
from ..message.calls import feature_shapes
from ..message.checks import check_message_rows, checked_message
from ..message.message_op import MessageOp, MessageText, message_op
from ..message.operators import aggregate, edge_map
from ..message.programs.operands import broadcast_features

if TYPE_CHECKING:
    from . import calls, gradients, softmax
    from .calls import AttentionForm
else:
    calls = later(__name__, ".calls")
    gradients = later(__name__, ".gradients")
    softmax = later(__name__, ".softmax")


_ROW_SUM = message_op("mul(x0, x1)", ("edge", "edge"), "sum")
_GRADIENT = message_op("mul(x0, sub(x1, x2))", ("edge", "edge", "row"))
_SECOND_GRADIENT = message_op("sub(mul(x0, sub(x1, x2)), mul(x1, x3))", ("edge", "edge", "row", "row"))


def softmax_edges(structure, scores: Tensor) -> Tensor:
    """The softmax over each row, of scores that passed the checks, with gradients of any order."""
    return EDGE_SOFTMAX(structure, (scores,))


def softmax_segments(structure, scores: Tensor) -> Tensor:
    """The softmax over each segment, where infinite maxima are taken for 0 (`EdgeSoftmaxSpec.finite`)."""
    return SEGMENT_SOFTMAX(structure, (scores,))


def attention_weights(
    structure, score_form: MessageOp, score_operands: Sequence[Tensor], reduced: bool = False
) -> Tensor:
    """The weights of edges as a tensor: (E, *S) in the user's edge order, with gradients of any order."""
    last = ()
    if reduced:
        rank = len(broadcast_features(feature_shapes(score_form, score_operands)))
        last = (False,) * (rank - 1) + (True,)
    return softmax_edges(structure, edge_map(score_form, structure, last, *score_operands))


def composed(of: AttentionForm, structure, operands: Sequence[Tensor]) -> Tensor:
    """Attention from operators whose gradients are operators again."""
    score, value = of.take_apart(operands)
    return aggregate(of.weighted, structure, attention_weights(structure, of.score, score, of.reduced), *value)


def _softmax(gradient: bool, finite: bool = False):
    return lambda graph, operands, attributes: softmax.run_softmax(graph, operands, gradient, False, finite)


def _gradient_of_softmax(structure, attributes, saved, memo, needed, grad: Tensor) -> list[Tensor]:
    (out,) = saved
    if torch.is_grad_enabled():  # to be differentiated again
        return [edge_map(_GRADIENT, structure, (), out, grad, aggregate(_ROW_SUM, structure, out, grad))]
    return [EDGE_SOFTMAX_BACKWARD(structure, (out, grad))]


def _second_gradient_of_softmax(structure, attributes, saved, memo, needed, cotangent: Tensor) -> list[Tensor | None]:
    """Gradients of p * (g - s), s the sum of p * g over a row: to p it is c * (g - s) - g * t, t the sum of p * c."""
    out, grad = saved
    to_out = to_grad = None
    if needed[0]:
        sums = [aggregate(_ROW_SUM, structure, out, x) for x in (grad, cotangent)]
        to_out = edge_map(_SECOND_GRADIENT, structure, (), cotangent, grad, *sums)
    if needed[1]:
        to_grad = EDGE_SOFTMAX_BACKWARD(structure, (out, cotangent))
    return [to_out, to_grad]


def _check_softmax(graph: Graph, operands, attributes):
    first = operands[0]
    for x in operands:
        check_edges(graph, "scores", x)
        if x.shape != first.shape or x.dtype != first.dtype:
            raise ValueError(
                f"edge_softmax: {tuple(x.shape)} of {x.dtype} does not go with {tuple(first.shape)} of {first.dtype}"
            )
    check_kernels("edge_softmax", graph.device)
    return operands


def check_edges(graph: Graph, name: str, x) -> None:
    """``x`` is a dense floating tensor with a row per edge."""
    check_dense("edge_softmax", name, x)
    if x.dim() == 0:
        raise ValueError(f"edge_softmax: {name} must have a row per edge of the graph, got a tensor without dimensions")
    check_rows("edge_softmax", name, x, graph.num_edges, "edge", graph)


_SOFTMAX = {
    "structure": GRAPH,
    "attributes": "bool transposed",
    **TRANSPOSED,
    "check": _check_softmax,
}
EDGE_SOFTMAX, SEGMENT_SOFTMAX = (
    Operator(
        name,
        _softmax(False, finite),
        _gradient_of_softmax,
        operands="Tensor scores",
        saved=lambda attributes, operands, result: ((result,), None),
        **_SOFTMAX,
    )
    for name, finite in (("edge_softmax", False), ("segment_softmax", True))
)
EDGE_SOFTMAX_BACKWARD = Operator(
    "edge_softmax_backward",
    _softmax(True),
    _second_gradient_of_softmax,
    operands="Tensor out, Tensor grad",
    **_SOFTMAX,
)
"""Operands: (softmax, its cotangent)."""


class AttentionText(NamedTuple):
    """What an `AttentionForm` is made of, before anybody parses it: what a traced program holds."""

    score: MessageText
    value: MessageText
    reduced: bool


_hooked = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_if_tracing: None)
"""The hooks that take what gradients read, such as those of a checkpoint, where PyTorch says so."""


@dataclass(slots=True)
class _Result:
    """The result of an eager call, for its gradient.

    Not saved as operands are: users may write to what a layer returns, and the framework's own layers would not mind.
    Freed after its use, as saved tensors are. In a checkpoint it is saved all the same, to be freed until then.

    tensor: None in a checkpoint. same: for each operand the first that is the same variable.
    """

    tensor: Tensor | None
    version: int
    same: tuple[int, ...]

    def taken(self, saved: Tensor | None) -> Tensor | None:
        """The tensor, or what was ``saved`` of it; None if somebody wrote to it, or asked before."""
        found, self.tensor = saved if self.tensor is None else self.tensor, None
        return found if found is not None and found._version == self.version else None


def _record_attention(graph, operands, attributes, needed):
    of, call = attributes
    out, *normaliser = calls.run_attention(of, graph, operands, call)
    result = out.detach()
    places = [id(x) for x in operands]
    kept, saved = (None, result) if _hooked(True) is not None else (result, None)
    return out, (saved, *normaliser, *operands), _Result(kept, result._version, tuple(map(places.index, places)))


def _gradients_of_attention(structure, attributes, saved, memo: _Result | None, needed, grad: Tensor, *_):
    of = attributes[0]
    result, *normaliser = saved[:3]
    operands = saved[3:]
    same = tuple(range(len(operands)))
    if memo is not None:
        result = memo.taken(result)
        if not isinstance(structure, Traced):
            same = memo.same
    if differentiated_again():
        return pulled_back(lambda operands: composed(of, structure, operands), operands, needed, grad)
    if result is None:
        result = ATTEND(structure, operands, (of, None))
    found = iter(ATTEND_BACKWARD(structure, operands, (of, (result, *normaliser), grad, needed, same)))
    return [next(found) if wanted and at == first else None for at, (wanted, first) in enumerate(zip(needed, same))]


def _run_backward(graph, operands, attributes) -> list[Tensor]:
    of, results, grad, needed, *same = attributes
    results = [plain_tensor(x) for x in results]
    found = gradients.attention_gradients(of, graph, operands, results, plain_tensor(grad), tuple(needed), *same)
    return [x for x in found if x is not None]


def _encode(attributes, transposed: bool):
    of, *more = attributes
    score, value = of.score, of.value
    forms = str(score.message), ",".join(score.places), str(value.message), ",".join(value.places), of.reduced
    return *forms, *more


def _form(score: str, score_places: str, value: str, value_places: str, reduced: bool) -> AttentionForm:
    forms = [
        checked_message("attend", text, tuple(places.split(",")), None, None)
        for text, places in ((score, score_places), (value, value_places))
    ]
    for form in forms:
        if form.sums:
            raise ValueError(f"attend: {str(form.message)!r} has a sum over features of its own: compute it beforehand")
    return calls.attention_form(*forms, reduced)


def _check_attention(graph: Graph, operands, attributes):
    places = attributes[0].places
    if len(operands) != len(places):
        raise ValueError(f"attend: the places {places} want {len(places)} operands, got {len(operands)}")
    names = [f"x{number}" for number in range(len(operands))]
    for label, x in zip(names, operands):
        check_dense("attend", label, x)
    check_message_rows("attend", graph, names, places, operands)
    return operands


def _like_attention(arguments, operands, attributes, transposed: bool):
    of = attributes[0]
    first = operands[len(of.score.places)]
    dims, scores = calls.result_shapes(of, operands)
    rows = arguments[0].shape[0] - 1
    wide = accumulator_of(first.dtype)
    return first.new_empty((rows, *dims)), *(first.new_empty((rows, scores), dtype=wide) for _ in range(2))


_FORMS = "str score, str score_places, str value, str value_places, bool reduced"
ATTEND = Operator(
    "attend",
    lambda graph, operands, attributes: calls.run_attention(attributes[0], graph, operands, attributes[1])[0],
    _gradients_of_attention,
    _record_attention,
    GRAPH,
    "Tensor[] operands",
    _FORMS,
    "(Tensor, Tensor, Tensor)",
    encode=lambda attributes, transposed: _encode(attributes[:1], transposed),
    decode=lambda *forms: ((_form(*forms), None), False),
    like=_like_attention,
    check=_check_attention,
    library=lambda graph, operands, attributes: calls.run_attention(attributes[0], graph, operands),
    saved=lambda attributes, operands, results: ((*results, *operands), None),
)
"""Operands: those of the score, then those of the value. Attributes: (the form, what is known of the call or None)."""

ATTEND_BACKWARD = Operator(
    "attend_backward",
    _run_backward,
    structure=GRAPH,
    operands="Tensor[] operands",
    attributes=f"{_FORMS}, Tensor[] results, Tensor grad, bool[] needed",
    results="Tensor[]",
    encode=lambda attributes, transposed: _encode(
        (*attributes[:1], list(attributes[1]), attributes[2], list(attributes[3])), transposed
    ),
    decode=lambda *values: ((_form(*values[:5]), *values[5:]), False),
    like=lambda arguments, operands, attributes, transposed: [
        x.new_empty(x.shape) for x, wanted in zip(operands, attributes[3]) if wanted
    ],
    check=_check_attention,
)
"""Attributes: (the form, what ``attend`` gave, the cotangent of the first, which gradients are needed), and in eager
programs for each operand the first that is the same variable, which gets the gradient of both.
"""
