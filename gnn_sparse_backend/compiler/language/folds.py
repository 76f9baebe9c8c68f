"""Folds: how a loop takes its elements into local results, where what another part of the elements left can stand for
an element.

    sum        S = S + t
    product    S = S * t
    extreme    S = select(t > S, t, S), or with <; select(differ(t, t), NaN, ...) where a NaN is to be the result
    its place  P = select(t > S, p, select(S > t, P, c)): the p of the one t that became S, and c where several did, or
    NaN,
               which then has to be the result: the place of a number would be c or not by where a NaN stands

The order of the elements decides no more than the order of operations, and which of two zeros is the greatest. What
part of them left of S and P may take the places of t and p: partial results become one as an element is taken into
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...frozen import dataclass
from .expr import Binary, Const, Expr, Load, Select
from .program import Buffer, Store
from .traversal import walk
from .types import FLOATS

# where the term of an extreme stands that may be NaN
_BEHIND_NAN = ("otherwise", "then")


@dataclass(frozen=True)
class Fold:
    """A local result. term: what an element brings to it. path: where the term stands in the value that is stored, by
    names of sub-expressions. neutral: what the result is before the first. better: how a term compares that takes the
    place of an extreme. place: whether it is a place, which also tells that nothing was folded: partial results of
    no elements may not be taken into it.
    """

    buffer: Buffer
    term: Expr
    path: tuple[str, ...]
    neutral: float
    better: str | None = None
    place: bool = False


def folds(stores: Sequence[Store]) -> tuple[Fold, ...] | str:
    """The fold of each store of a loop's body, all to elements of their own, in the same order; or why one is none."""
    found: list[Fold] = []
    for store in reversed(stores):  # a place stands before the result that it belongs to
        fold = _arithmetic(store) or _extreme(store) or _place(store, {fold.buffer: fold for fold in found})
        if fold is None:
            return (
                f"does not fold in the form X = X + term, or that of a product or maximum, into {store.buffer.name!r}"
            )
        if any(fold.buffer == other.buffer for other in found):
            return f"folds into {store.buffer.name!r} twice"
        found.insert(0, fold)
    results = {fold.buffer for fold in found}
    if any(isinstance(e, Load) and e.buffer in results for fold in found for e in walk(fold.term)):
        return "takes in a term that depends on a result"
    return tuple(found)


def _own(store: Store) -> Load:
    return Load(store.buffer, store.indices)


def _arithmetic(store: Store) -> Fold | None:
    match store.value:
        case Binary("+" | "*" as op, own, term) if own == _own(store) and store.buffer.dtype in FLOATS:
            return Fold(store.buffer, term, ("b",), 0.0 if op == "+" else 1.0)
    return None


def _extreme(store: Store) -> Fold | None:
    own, value = _own(store), store.value
    tested: Expr | None = None
    match value:
        case Select(Binary("!=", tested, same), Binary("-", infinity, other), value):
            if tested != same or not infinity == other == Const(float("inf"), store.buffer.dtype):
                return None
    if not isinstance(value, Select) or value.otherwise != own or tested not in (None, value.then):
        return None
    for better, neutral in ((">", float("-inf")), ("<", float("inf"))):
        if value.condition == Binary(better, value.then, own):
            return Fold(store.buffer, value.then, ("then",) if tested is None else _BEHIND_NAN, neutral, better)
    return None


def _place(store: Store, extremes: dict[Buffer, Fold]) -> Fold | None:
    match store.value:
        case Select(Binary(better, term, Load(buffer, indices) as best), place, Select(worse, kept, Const())):
            found = extremes.get(buffer)
            wanted = Binary(better, best, term), _own(store), store.indices
            if (
                found
                and found.path == _BEHIND_NAN
                and (found.better, found.term) == (better, term)
                and (worse, kept, indices) == wanted
            ):
                return Fold(store.buffer, place, ("then",), 0, place=True)
    return None
