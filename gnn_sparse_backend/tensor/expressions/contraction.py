"""In which order the operands of a product are contracted, two at a time: by what each order costs.

One kernel for all of them multiplies every combination of elements that meet; a product of two, summed over the indices
that nobody else has, may leave far fewer. Orders are compared as opt_einsum compares them (Smith and Gray, JOSS 2018),
with the numbers of elements of sparse operands, which are taken to lie anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import inf, prod
from typing import NamedTuple

Path = tuple[tuple[int, int], ...]
"""Which two are contracted at each step, by their places among what is left; the result comes last."""

MOST = 5
"""Operands of which all orders are compared."""
GAIN, LEAST = 4.0, 1e5
"""The factor, and the number of products, that another order has to save over one kernel, which stores nothing in
between.
"""
GAIN_SPARSE = 0.75
"""The factor, where the result stores elements of its own, which one kernel stores as well. Steps may take more: of
chains of three matrices, 500 to 20,000 rows with 3 to 40 elements each, one kernel took 1.1 to 4.7 times as long.
"""


class Factor(NamedTuple):
    """An operand: its indices, and how many elements it has."""

    indices: frozenset[str]
    elements: float


def path_of(
    factors: Sequence[Factor], result: frozenset[str], sizes: Mapping[str, int], sparse: bool = False
) -> Path | None:
    """The order, two at a time; None where one kernel for all is as well.

    sparse: the result stores elements of its own.
    """
    together = _meeting(factors, sizes)
    if not 2 < len(factors) <= MOST or together < LEAST:
        return None
    cost, path = min(_paths(tuple(factors), result, sizes), key=lambda found: found[0], default=(inf, ()))
    if sparse:
        return path if cost * GAIN_SPARSE < together + _made(together, result, sizes) else None
    return path if cost * GAIN < together else None


def kept_indices(one: frozenset[str], other: frozenset[str], needed: frozenset[str]) -> frozenset[str]:
    """The indices of a product of two that others, or the result, have too."""
    return (one | other) & needed


def _paths(
    factors: tuple[Factor, ...], result: frozenset[str], sizes: Mapping[str, int]
) -> Iterator[tuple[float, Path]]:
    """All orders, each with the products that it takes."""
    if len(factors) == 1:
        yield 0.0, ()
        return
    for a, b in combinations(range(len(factors)), 2):
        left = tuple(factor for at, factor in enumerate(factors) if at not in (a, b))
        needed = result.union(*(factor.indices for factor in left))
        products = _meeting((factors[a], factors[b]), sizes)
        kept = kept_indices(factors[a].indices, factors[b].indices, needed)
        made = Factor(kept, _made(products, kept, sizes))
        for cost, path in _paths((*left, made), result, sizes):
            yield products + made.elements + cost, ((a, b), *path)


def _made(products: float, kept: frozenset[str], sizes: Mapping[str, int]) -> float:
    """Estimate the elements of a result with the indices `kept`, into which `products` products are summed."""
    return min(products, prod(sizes[index] for index in kept))


def _meeting(factors: Sequence[Factor], sizes: Mapping[str, int]) -> float:
    """How many combinations of elements have the same coordinates where they share an index."""
    found = prod(factor.elements for factor in factors)
    for index in frozenset().union(*(factor.indices for factor in factors)):
        sharing = sum(index in factor.indices for factor in factors)
        found /= max(sizes[index], 1) ** (sharing - 1)
    return found
