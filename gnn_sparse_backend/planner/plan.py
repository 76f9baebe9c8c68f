"""A plan: the format and the schedule that a kernel runs with on one graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..compiler.cache.bounded import KernelCache, shared


@dataclass(frozen=True)
class Plan:
    """One member of the kernel family. What it computes does not depend on it beyond the order of additions.

    groups: row groups of the parallel loop, 1 for one thread.
    prefetch: how many non-zeros the gathers look ahead, 0 for none.
    balance: what the groups hold equally much of: "nonzeros" or "rows" (Huang et al., section 3.2).
    reduction: "sequential": a vector of features walks along the non-zeros of a row; "simd": a vector of non-zeros
        is reduced for each feature (ibid., section 3.1); "scattered": one loop over all non-zeros of a group, each of
        which adds to its row of the result.
    partitions: column partitions, each of which is gone through for all rows before the next (hyb's c).
    longest_part: longest part of a row. Rows of more non-zeros are cut into parts of this length, whose results are
        reduced in a second pass, so that no row keeps one thread busy while the others wait; 0 for whole rows.
    sliced: features of a slice of the dense operand, which is packed, rows side by side, before it is gathered from;
        one slice after the other. 0 for whole rows where they lie.

    Groups and prefetch, the balance, slices, and whether sequential sums are scattered, leave every bit of the result
    as it is; the rest decides the order of additions, so it must not depend on the number of threads.
    """

    groups: int
    prefetch: int = 0
    balance: str = "nonzeros"
    reduction: str = "sequential"
    partitions: int = 1
    longest_part: int = 0
    sliced: int = 0

    if TYPE_CHECKING:

        @property
        def _hash(self) -> int: ...

    def __post_init__(self) -> None:
        # every call looks its kernel up by its plan
        object.__setattr__(self, "_hash", hash(tuple(vars(self).values())))

    def __hash__(self) -> int:
        return self._hash


_plans: KernelCache[Plan, Plan] = shared("plans")


def interned(plan: Plan) -> Plan:
    """The one object for equal plans: every call looks its kernel up by its plan, and comparing two takes longer than
    that.
    """
    found = _plans.get(plan)
    return _plans.keep(plan, plan) if found is None else found
