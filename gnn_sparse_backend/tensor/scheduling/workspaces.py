"""`precompute`: a part of a product is summed in a workspace first (Kjolstad et al., CGO 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..errors import NotationError
from ..expressions.notation import Access, Statement, parse
from ..expressions.terms import Factor, Term, products_of
from .commands import Nests, fresh, plain, refuse, with_loops
from .nest import Assign, Nest, Where
from .provenance import Bound, ancestors


def precompute(
    nests: Nests, expression: str, names: Sequence[str], inside: Sequence[str], workspace: str, taken: Iterable[str]
) -> Nests:
    """Sum `expression`, a part of a product, in a workspace with a value for each value of the variables `names`.

    The workspace is filled by loops of its own, over `inside`, right before the loops that read it.
    """
    command = f"precompute({expression!r}, {', '.join(names)}, {', '.join(inside)}, {workspace})"
    if not names or len(names) != len(inside):
        refuse(command, f"there are {len(names)} variables and {len(inside)} for where the workspace is filled")
    fresh(command, nests, (*inside, workspace), taken)
    factors = _factors(command, expression, workspace)
    hit = 0

    def change(nest: Nest) -> Nest:
        nonlocal hit
        rest = _without(nest.body.term, factors) if isinstance(nest.body, Assign) else None
        if rest is None:
            return nest
        hit += 1
        return _parted(command, nest, rest, factors, names, inside, workspace)

    found = with_loops(command, nests, names, change)
    if not hit:
        products = "; ".join(str(each) for nest in nests for each in nest.assigns())
        refuse(command, f"{expression} is no part of a product under these loops: {products}")
    return found


def _factors(command: str, expression: str, workspace: str) -> tuple[Factor, ...]:
    try:
        statement: Statement = parse(f"{workspace} = {expression}")
    except NotationError as error:
        refuse(command, str(error))
    found = products_of(statement)
    if len(found) != 1 or found[0].coefficient != 1:
        refuse(command, f"{expression} is not a product of tensors")
    return found[0].factors


def _without(term: Term, factors: Sequence[Factor]) -> tuple[Factor, ...] | None:
    """The other factors of a product; None where these are not among them."""
    left = list(term.factors)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _parted(
    command: str,
    nest: Nest,
    rest: tuple[Factor, ...],
    factors: tuple[Factor, ...],
    names: Sequence[str],
    inside: Sequence[str],
    workspace: str,
) -> Nest:
    assert isinstance(nest.body, Assign)
    target, term = nest.body.target, nest.body.term
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
            refuse(command, f"nothing of it depends on {name}")
        plain(command, nest, name)
    for name in within:
        plain(command, nest, name)
    again = dict(zip(names, inside))
    filled = tuple(loop for loop in nest.loops[begin:] if loop.name in names or shares(loop.name)[0])
    used = tuple(loop for loop in nest.loops[begin:] if loop.name in names or not shares(loop.name)[0])
    graph = (*nest.graph, *(Bound(name, pre, 0, "same") for name, pre in again.items()))
    producer = Nest(
        tuple(replace(loop, name=again.get(loop.name, loop.name)) for loop in filled),
        Assign(Access(workspace, tuple(inside)), Term(1, factors)),
        graph,
    )
    read = Factor(Access(workspace, tuple(names)))
    consumer = Nest(used, Assign(target, replace(term, factors=(*rest, read))), nest.graph)
    return replace(nest, loops=nest.loops[:begin], body=Where(consumer, producer, Access(workspace, tuple(names))))
