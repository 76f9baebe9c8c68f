"""`precompute`: a part of a product is summed in a workspace first (Kjolstad et al., CGO 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isfinite
from typing import NoReturn

from ..errors import NotationError
from ..expressions.loops.provenance import Bound, ancestors
from ..expressions.notation import Access, Statement, parse, written
from ..expressions.terms import Factor, Term, products_of
from .commands import Nests, fresh, plain, refuse, with_loops
from .nest import Assign, Nest, Where, expression_of


def precompute(
    nests: Nests, expression: str, names: Sequence[str], inside: Sequence[str], workspace: str, taken: Iterable[str]
) -> Nests:
    """Sum `expression`, a part of a product or of the sum, in a workspace with a value for each value of `names`.

    The workspace is filled by loops of its own, over `inside`, right before the loops that read it; a sum by one row of
    loops for each of its products.
    """
    command = f"precompute({expression!r}, {', '.join(names)}, {', '.join(inside)}, {workspace})"
    if not names or len(names) != len(inside):
        refuse(
            command,
            f"there are {len(names)} variables and {len(inside)} for where the workspace is filled; give as many",
        )
    fresh(command, nests, (*inside, workspace), taken)
    parts = products_in(command, expression, workspace)
    if len(parts) > 1:
        return _sum(command, nests, parts, names, inside, workspace)
    hit = 0

    def change(nest: Nest) -> Nest:
        nonlocal hit
        found = _parted(command, nest, parts[0], names, inside, workspace)
        hit += found is not None
        return found or nest

    found = with_loops(command, nests, names, change)
    if not hit:
        _none(command, nests, expression)
    return found


def _none(command: str, nests: Nests, expression: str) -> NoReturn:
    products = "; ".join(str(each) for nest in nests for each in nest.assigns())
    refuse(command, f"{expression} is no part of a product under these loops: {products}")


def _sum(
    command: str, nests: Nests, parts: Sequence[Term], names: Sequence[str], inside: Sequence[str], workspace: str
) -> Nests:
    """Nests, one for each part, as one that fills a workspace in all of their loops."""
    left, found = list(nests), list[tuple[int, Nest]]()
    with_loops(command, nests, names, lambda nest: nest)
    for part in parts:
        made = None
        for at, nest in enumerate(left):
            if all(map(nest.holds, names)) and all(at != taken for taken, _ in found):
                made = _parted(command, nest, part, names, inside, workspace)
                if made is not None:
                    found.append((at, made))
                    break
        if made is None:
            _none(command, nests, written(expression_of(part)))
    first = found[0][1]
    assert isinstance(first.body, Where)
    producers: list[Nest] = []
    for _, other in found:
        assert isinstance(other.body, Where)
        if replace(other, body=first.body) != first or other.body.consumer != first.body.consumer:
            one, two = ("\n".join(each.text()) for each in (first, other))
            refuse(
                command, f"parts of the sum stand in other loops, or are multiplied by something else:\n{one}\n{two}"
            )
        producers += other.body.producers
    left[found[0][0]] = replace(first, body=replace(first.body, producers=tuple(producers)))
    return tuple(nest for at, nest in enumerate(left) if at not in [taken for taken, _ in found[1:]])


def products_in(command: str, expression: str, workspace: str) -> tuple[Term, ...]:
    """The products of what a command is to put in a workspace; refused where it is no sum of products of tensors."""
    try:
        statement: Statement = parse(f"{workspace} = {expression}")
        found = products_of(statement)
    except NotationError as error:
        refuse(command, str(error))
    if any(not term.factors or term.coefficient == 0 for term in found):
        refuse(command, f"{expression} is not a sum of products of tensors")
    return found


def _without(term: Term, factors: Sequence[Factor]) -> tuple[Factor, ...] | None:
    """The other factors of a product; None where these are not among them."""
    left = list(term.factors)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _parted(
    command: str, nest: Nest, part: Term, names: Sequence[str], inside: Sequence[str], workspace: str
) -> Nest | None:
    """The nest with the part in a workspace; None where the part is none of what it computes."""
    if not isinstance(nest.body, Assign):
        return None
    target, term, factors = nest.body.target, nest.body.term, part.factors
    rest = _without(term, factors)
    if not all(isinstance(each, int) or isfinite(each) for each in (term.coefficient, part.coefficient)):
        return None  # infinity by infinity is no number
    times = Fraction(term.coefficient) / Fraction(part.coefficient)
    if rest is None or (isinstance(term.coefficient, int) and times.denominator != 1):
        return None
    mine = {index for factor in factors for index in factor.indices}
    others = {index for factor in rest for index in factor.indices} | set(target.indices)

    def shares(loop: str) -> tuple[bool, bool]:
        indices = set(ancestors(nest.graph, loop))
        return bool(indices & mine), bool(indices & others)

    begin = len(nest.loops)
    while begin and (nest.loops[begin - 1].name in names or not all(shares(nest.loops[begin - 1].name))):
        begin -= 1
    within = [loop.name for loop in nest.loops[begin:]]
    for name in names:
        if name not in within:
            last = nest.loops[begin - 1].name
            refuse(command, f"the loop over {last}, on which both depend, is inside of that over {name}; reorder them")
        if not shares(name)[0]:
            refuse(command, f"nothing of {written(expression_of(part))} depends on {name}; leave it out")
        plain(command, nest, name)
    for name in within:
        plain(command, nest, name)
    again = dict(zip(names, inside))
    filled = tuple(loop for loop in nest.loops[begin:] if loop.name in names or shares(loop.name)[0])
    used = tuple(loop for loop in nest.loops[begin:] if loop.name in names or not shares(loop.name)[0])
    graph = (*nest.graph, *(Bound(name, pre, 0, "same") for name, pre in again.items()))
    producer = Nest(
        tuple(replace(loop, name=again.get(loop.name, loop.name)) for loop in filled),
        Assign(Access(workspace, tuple(inside)), part),
        graph,
    )
    read = Factor(Access(workspace, tuple(names)))
    left = Term(int(times) if times.denominator == 1 else float(times), (*rest, read))
    consumer = Nest(used, Assign(target, left), nest.graph)
    return replace(nest, loops=nest.loops[:begin], body=Where(consumer, (producer,), Access(workspace, tuple(names))))
