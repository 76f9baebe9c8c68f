"""``gsb.aggregate`` and ``gsb.edge_map``: any message over sources, destinations and edges, reduced or kept.

Every generalised SpMM and SDDMM is one of these two with a message of its own (``gspmm``, ``gsddmm``).
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from ....compiler.language.reduction import REDUCTIONS
from ....structures.graph import Graph
from ...core.operands import check_graph, check_traced, is_plain
from ...core.partitioned import Partitioned, placed
from ...core.signatures import prepared_call
from ...core.traced import traced_graph
from ..checks import check_choice, check_message_operands, check_message_rows, checked_message, says_sums
from ..message_op import MessageText
from ..operators import AGGREGATE, EDGE_MAP, aggregate_like, keeps
from ..programs.message import Message

PLACES = {"u": "column", "e": "edge", "v": "row", "all": "all"}
"""Where an operand stands: at the source, the edge, the destination, or the same for all edges."""

_TIES = ("even", "last", "first")


@placed(sums=("sum", "mean"))
def aggregate(
    graph: Graph | Partitioned,
    message: str | Message,
    operands: Iterable[tuple[str, Tensor]],
    reduce: str = "sum",
    *,
    ties: str = "even",
) -> Tensor:
    """Into every destination the sum, mean, product, maximum or minimum of the messages of its edges.

        gsb.aggregate(graph, "mul(sigmoid(add(x0, x1)), x2)", [("u", x), ("v", y), ("e", w)])

    Args:
        graph: structure of shape (n_dst, n_src).
        message: an expression over x0, x1, ... (the operands in order) and numbers, of add, sub, mul, div, neg, exp,
            log, sqrt, tanh, sigmoid, relu, abs, sign and ``leaky_relu(x, slope)``, and of sums over the last feature
            dimension, which stays with extent 1: ``sum(x)``, and ``dot(x, y)``, which is ``sum(mul(x, y))``. It must
            read every operand.
        operands: pairs of a place and a tensor. ``("u", x)``: x (n_src, ...) features of the source; ``("v", y)``:
            y (n_dst, ...) of the destination; ``("e", w)``: w (E, ...) of the edge, in the user's edge order;
            ``("all", a)``: a (...) the same for all edges. Features broadcast as in NumPy. Tensors are dense, of any
            strides, all of one type: float32, float64, bfloat16 or float16.
        reduce: ``"sum"``, ``"mean"`` (over the edges into the destination), ``"prod"``, ``"max"`` or ``"min"``. The
            product of no messages is 1; its gradients divide by nothing, so that factors of 0 have theirs.
        ties: for max and min. ``"even"``: equal messages share the gradient, NaN wins, and a destination without edges
            is 0, as PyTorch's ``scatter_reduce`` has it. ``"last"`` or ``"first"``: the last or first of equal messages
            in the order of ``graph.indices`` gets the gradient, NaN is never chosen, and a destination without a choice
            is -inf (max) or inf (min), as DGL's kernels have it.

    Returns:
        (n_dst, ...) with the broadcast features, contiguous, in the type of the operands. Messages are computed and
        summed in at least float32. Gradients of any order flow to all operands. Autocast and ``torch.compile`` as in
        ``spmm``.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: the message is not one or does not read an operand, a shape or device does not fit the graph,
            features do not broadcast, or ``reduce`` or ``ties`` is unknown.
    """
    if isinstance(graph, Partitioned):
        return graph.call(aggregate, locals())
    places, names, tensors = _taken_apart("aggregate", operands)
    return reduce_messages("aggregate", graph, str(message), places, names, tensors, reduce, ties)


def edge_map(
    graph: Graph, message: str | Message, operands: Iterable[tuple[str, Tensor]], sum_last: bool = False
) -> Tensor:
    """The message of every edge, in the user's edge order: (E, ...).

    Args:
        graph, message, operands: as in ``aggregate``.
        sum_last: sum over the last feature dimension, which stays with extent 1; so ``"mul(x0, x1)"`` becomes a dot
            product.

    Returns:
        (E, ...) with the broadcast features, contiguous, in the type of the operands. Gradients, autocast and
        ``torch.compile`` as in ``aggregate``.

    Raises:
        TypeError, ValueError: as ``aggregate``; also where ``sum_last`` has no dimension to sum over.
    """
    if not isinstance(sum_last, bool):
        raise TypeError(f"edge_map: sum_last must be True or False, got {sum_last!r} of type {type(sum_last).__name__}")
    places, names, tensors = _taken_apart("edge_map", operands)
    return map_edges("edge_map", graph, str(message), places, names, tensors, sum_last)


def reduce_messages(operator: str, graph, message: str, places, names, tensors, reduce: str, ties: str) -> Tensor:
    """``aggregate`` for the public operator of this name; ``names`` are what its user calls the operands."""
    check_graph(operator, graph)
    signature, prepared = prepared_call(graph, (operator, message, places, reduce, ties), tensors)
    if prepared is not None and not keeps(prepared.of, graph, tensors):
        return AGGREGATE(graph, tensors, (prepared.of, prepared))
    check_choice(operator, "reduce", reduce, tuple(REDUCTIONS))
    check_choice(operator, "ties", ties, _TIES)
    tensors, _ = check_message_operands(operator, names, places, tensors, message)
    if not REDUCTIONS[reduce].chooses:
        ties = None
    if signature is None and not is_plain(*tensors):
        check_traced(operator, names, tensors, graph.device)
        return AGGREGATE(traced_graph(graph), tensors, (MessageText(message, places, reduce, ties),))
    of = checked_message(operator, message, places, reduce, ties)
    check_message_rows(operator, graph, names, places, tensors)
    return aggregate_like(of, graph, tensors, signature)


def map_edges(operator: str, graph, message: str, places, names, tensors, sum_last: bool) -> Tensor:
    """``edge_map`` for the public operator of this name."""
    check_graph(operator, graph)
    tensors, dims = check_message_operands(operator, names, places, tensors, message)
    if sum_last and not dims:
        raise ValueError(
            f"{operator}: there is no feature dimension to sum over: {', '.join(names)} have shapes "
            f"{', '.join(str(tuple(x.shape)) for x in tensors)}"
        )
    if sum_last and says_sums(message):
        message, sum_last = f"sum({message})", False
    reduced = (False,) * (dims - 1) + (True,) if sum_last else ()
    if not is_plain(*tensors):
        check_traced(operator, names, tensors, graph.device)
        return EDGE_MAP(traced_graph(graph), tensors, (MessageText(message, places), reduced))
    of = checked_message(operator, message, places, None, None)
    check_message_rows(operator, graph, names, places, tensors)
    return EDGE_MAP(graph, tensors, (of, reduced))


def _taken_apart(operator: str, operands) -> tuple[tuple[str, ...], tuple[str, ...], list]:
    """Places, names and tensors of the operands as a user gives them."""
    wanted = "operands must be pairs like ('u', x), of a place 'u', 'v', 'e' or 'all' and a tensor"
    if not isinstance(operands, (list, tuple)):
        raise TypeError(f"{operator}: {wanted}; got {type(operands).__name__}")
    if not operands:
        raise ValueError(f"{operator}: {wanted}; got none")
    places, tensors = [], []
    for number, pair in enumerate(operands):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"{operator}: {wanted}; operand {number} is of type {type(pair).__name__}")
        place, x = pair
        if not isinstance(place, str) or place not in PLACES:
            raise ValueError(f"{operator}: {wanted}; operand {number} stands at {place!r}")
        places.append(PLACES[place])
        tensors.append(x)
    return tuple(places), tuple(f"x{number}" for number in range(len(places))), tensors


def every(operator: str, op: str, operands) -> tuple:
    """(places, names, tensors) of the (name, place, tensor) that ``op`` takes; none may be missing."""
    for name, _, x in operands:
        if x is None:
            raise ValueError(f"{operator}: op {op!r} wants {name}, which is missing")
    names, places, tensors = zip(*operands)
    return places, names, tensors


def only(operator: str, op: str, operands, number: int) -> tuple:
    """``every`` for an ``op`` that takes one of ``operands`` and no other."""
    for at, (name, _, x) in enumerate(operands):
        if at != number and x is not None:
            raise ValueError(f"{operator}: op {op!r} does not read {name}; leave it out")
    return every(operator, op, operands[number : number + 1])
