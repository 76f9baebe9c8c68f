"""Relational products as operators.

T = sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]> is linear in each operand. The operators are its derivatives,
and the gradient of each by any operand is again one of them, with another operand in the place of the cotangent:

    rgms_product   by G: (rows, F_out)                grad x: product of the transpose by W^T  grad w: sum  grad a: dot
    rgms_sum       by W: (R, blocks, F_in, F_out)     grad x: product of the transpose by H^T  grad g: product
                                                      grad a: dot
    rgms_dot       by A: (edges,)                     grad x: product of the transpose by W^T  grad w: sum
                                                      grad g: product

With bases, W[r] = sum over b of comp[r, b] * bases[b], T is linear in five operands, and the operators are its
derivatives

    rgms_basis_product   by G: (rows, F_out)
    rgms_basis_dot       by A: (edges,)
    rgms_basis_sums      by comp: (R, B), and by bases: (B, F_in, F_out), which share the sums of outer products

whose gradients are again these. Those of the sums come from the sum of two such T, which is one T with twice the bases.

Attributes begin with (mean, transposed). mean: A is divided by the number of edges of the relation into the
destination. transposed: x stands at the destinations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...runtime.type_names import accumulator_of
from ...structures.relational.graph import RelGraph
from ..core.operands import check_fit
from ..core.operator import Operator, gradients_of
from ..core.traced import Traced, owned

if TYPE_CHECKING:
    from . import basis, executables
else:
    basis = later(__name__, ".basis")
    executables = later(__name__, ".executables")


def traced_rel_graph(rel: RelGraph) -> Traced:
    """What stands for a relational graph."""
    return Traced((rel.source, rel.destination, rel.relation, rel.shape[1], rel.shape[0], rel.num_relations))


def _rel_graph(source: Tensor, destination: Tensor, relation: Tensor, sources: int, destinations: int, relations: int):
    return RelGraph.from_triples(source, destination, relation, (destinations, sources), relations)


_TRIPLES = ("Tensor source", "Tensor destination", "Tensor relation")
_SIZES = ("SymInt num_sources", "SymInt num_destinations", "SymInt num_relations")
REL_GRAPH = owned((*_TRIPLES, *_SIZES), traced_rel_graph, RelGraph, _rel_graph)

_BY = {
    "x": lambda on, x, w, a, g, mean, transposed: PRODUCT(on, (g, w.transpose(2, 3), a), (mean, not transposed, "")),
    "w": lambda on, x, w, a, g, mean, transposed: SUM(on, (x, g, a), (w.shape[1], mean, transposed)),
    "a": lambda on, x, w, a, g, mean, transposed: DOT(on, (x, w, g), (mean, transposed)),
    "g": lambda on, x, w, a, g, mean, transposed: PRODUCT(on, (x, w, a), (mean, transposed, "")),
}
"""T differentiated by each of its operands. A shape alone is read of the operand that it is differentiated by."""
_MARKED = "mean", "transposed"


def _gradients(operands: str, by: str, first: int = 0):
    """The gradients of T differentiated by ``by``. first: which of the attributes is mean."""
    return gradients_of(_BY, operands, by, lambda attributes, _: dict(zip(_MARKED, attributes[first:])))


def _by_ends(structure, x, comp, bases, a, g, mean: bool, transposed: bool, wanted) -> tuple:
    """T differentiated by x, a and g, those that are ``wanted``."""
    by_x = by_a = by_g = None
    if wanted[0]:
        by_x = BASIS_PRODUCT(structure, (g, comp, bases.transpose(1, 2), a), (mean, not transposed))
    if wanted[1]:
        by_a = BASIS_DOT(structure, (x, comp, bases, g), (mean, transposed))
    if wanted[2]:
        by_g = BASIS_PRODUCT(structure, (x, comp, bases, a), (mean, transposed))
    return by_x, by_a, by_g


def _by_weights(structure, x, comp, bases, a, g, mean: bool, transposed: bool, wanted) -> tuple:
    """T differentiated by comp and bases, if either is ``wanted``."""
    return BASIS_SUMS(structure, (x, comp, bases, a, g), (mean, transposed)) if any(wanted) else (None, None)


def _basis_gradients(last: str):
    """The gradients of T differentiated by g as a function of x, comp, bases and a, the ``last`` operand; or by a,
    where that is g.
    """

    def gradients(structure, attributes, saved, memo, needed, cotangent: Tensor) -> tuple:
        x, comp, bases, other = saved
        wants_x, wants_comp, wants_bases, wants_other = needed
        a, g = (other, cotangent) if last == "a" else (cotangent, other)
        given = structure, x, comp, bases, a, g, *attributes
        by_x, by_a, by_g = _by_ends(*given, (wants_x, wants_other and last == "a", wants_other and last == "g"))
        return by_x, *_by_weights(*given, (wants_comp, wants_bases)), by_a if last == "a" else by_g

    return gradients


def _gradients_of_basis_sums(structure, attributes, saved, memo, needed, for_comp: Tensor, for_bases: Tensor) -> tuple:
    """Gradients to x, comp, bases, a, g."""
    x, comp, bases, a, g = saved
    wants_x, wants_comp, wants_bases, wants_a, wants_g = needed
    # T with for_comp in the place of comp, and T with for_bases in the place of bases, as one
    both = torch.cat([for_comp, comp], 1), torch.cat([bases, for_bases])
    by_x, by_a, by_g = _by_ends(structure, x, *both, a, g, *attributes, (wants_x, wants_a, wants_g))
    by_comp, _ = _by_weights(structure, x, comp, for_bases, a, g, *attributes, (wants_comp,))
    _, by_bases = _by_weights(structure, x, for_comp, bases, a, g, *attributes, (wants_bases,))
    return by_x, by_comp, by_bases, by_a, by_g


def _check(
    operator: str, rel: RelGraph, transposed: bool, fits: bool, widths: tuple[int, int], x, g, a, *weights: Tensor
) -> None:
    """Raise ValueError unless the weights are as ``fits`` says, the rows of x and g of these widths, one for each node,
    a of one number for each edge, and the types agree. None: not among the operands.
    """
    rows, cols = rel.shape[::-1] if transposed else rel.shape
    for y, count, width in ((x, cols, widths[0]), (g, rows, widths[1])):
        fits = fits and (y is None or y.shape == (count, width))
    given = [y for y in (x, *weights, g) if y is not None]
    fits = fits and (a is None or (a.shape == (rel.num_edges,) and a.dtype is accumulator_of(x.dtype)))
    check_fit(operator, rel, fits and all(y.dtype is x.dtype for y in given), *given, a)


def _matrices(operator: str, names: tuple[str, ...]):
    """The check of an operator on matrices."""

    def check(rel: RelGraph, operands, attributes):
        of = dict.fromkeys("xgaw") | dict(zip(names, operands))
        w = of["w"]
        widths = w.shape[1] * w.shape[2], w.shape[1] * w.shape[3]
        _check(operator, rel, attributes[1], w.shape[0] == rel.num_relations, widths, of["x"], of["g"], of["a"], w)
        return operands

    return check


def _sum(operator: str, names: tuple[str, ...]):
    """The check of the sum."""

    def check(rel: RelGraph, operands, attributes):
        (x, g, a), (blocks, _, transposed) = operands, attributes
        widths = x.shape[1], g.shape[1]
        fits = blocks > 0 and not any(width % blocks for width in widths)
        _check(operator, rel, transposed, fits, widths, x, g, a)
        return operands

    return check


def _bases(operator: str, names: tuple[str, ...]):
    """The check of an operator on bases."""

    def check(rel: RelGraph, operands, attributes):
        of = dict.fromkeys(("x", "g", "a")) | dict(zip(names, operands))
        comp, bases = of["comp"], of["bases"]
        fits = bases.dim() == 3 and comp.shape == (rel.num_relations, bases.shape[0])
        widths = tuple(bases.shape[1:])
        _check(operator, rel, attributes[1], fits, widths, of["x"], of["g"], of["a"], comp, bases)
        return operands

    return check


def _run(run):
    return lambda rel, operands, attributes: run(rel, *operands, *attributes)


def _run_product(rel, operands, attributes) -> Tensor:
    mean, transposed, order = attributes
    return executables.run_product(rel, *operands, mean, transposed, order or None)


def _run_sum(rel, operands, attributes) -> Tensor:
    (x, g, a), (blocks, mean, transposed) = operands, attributes
    return executables.run_sum(rel, x, g, blocks, a, mean, transposed).contiguous()


def _like_product(arguments, operands, attributes, transposed: bool) -> Tensor:
    x, w, _ = operands
    return x.new_empty((arguments[3] if attributes[1] else arguments[4], w.shape[1] * w.shape[3]))


def _like_sum(arguments, operands, attributes, transposed: bool) -> Tensor:
    (x, g, _), blocks = operands, attributes[0]
    return x.new_empty((arguments[5], blocks, x.shape[1] // blocks, g.shape[1] // blocks))


def _like_dot(arguments, operands, attributes, transposed: bool) -> Tensor:
    x = operands[0]
    return x.new_empty((arguments[0].shape[0],), dtype=accumulator_of(x.dtype))


def _like_basis_product(arguments, operands, attributes, transposed: bool) -> Tensor:
    x, _, bases, _ = operands
    return x.new_empty((arguments[3] if attributes[1] else arguments[4], bases.shape[2]))


_MARKS = "bool mean, bool transposed"


def _operator(name: str, run, gradients, operands: str, like, check, attributes: str = _MARKS, **more) -> Operator:
    """check: (name of the operator, names of the operands) to its check."""
    checked = check(name, tuple(each.split()[1] for each in operands.split(", ")))
    schema = {"structure": REL_GRAPH, "operands": operands, "attributes": attributes}
    return Operator(name, run, gradients, like=like, check=checked, **schema, **more)


PRODUCT = _operator(
    "rgms_product",
    _run_product,
    _gradients("xwa", "g"),
    "Tensor x, Tensor w, Tensor? a",
    _like_product,
    _matrices,
    f"{_MARKS}, str order",
)
"""Attributes: (mean, transposed, order: one of ``ORDERS``, or "" for the planner's choice)."""
SUM = _operator(
    "rgms_sum",
    _run_sum,
    _gradients("xga", "w", 1),
    "Tensor x, Tensor g, Tensor? a",
    _like_sum,
    _sum,
    f"SymInt blocks, {_MARKS}",
)
"""Attributes: (blocks on the diagonal, mean, transposed)."""
DOT = _operator(
    "rgms_dot",
    _run(lambda *given: executables.run_dot(*given)),
    _gradients("xwg", "a"),
    "Tensor x, Tensor w, Tensor g",
    _like_dot,
    _matrices,
)
BASIS_PRODUCT = _operator(
    "rgms_basis_product",
    _run(lambda *given: basis.run_basis_product(*given)),
    _basis_gradients("a"),
    "Tensor x, Tensor comp, Tensor bases, Tensor? a",
    _like_basis_product,
    _bases,
)
BASIS_DOT = _operator(
    "rgms_basis_dot",
    _run(lambda *given: basis.run_basis_dot(*given)),
    _basis_gradients("g"),
    "Tensor x, Tensor comp, Tensor bases, Tensor g",
    _like_dot,
    _bases,
)
BASIS_SUMS = _operator(
    "rgms_basis_sums",
    _run(lambda *given: basis.run_basis_sums(*given)),
    _gradients_of_basis_sums,
    "Tensor x, Tensor comp, Tensor bases, Tensor? a, Tensor g",
    lambda arguments, operands, attributes, transposed: tuple(y.new_empty(y.shape) for y in operands[1:3]),
    _bases,
    results="(Tensor, Tensor)",
)
