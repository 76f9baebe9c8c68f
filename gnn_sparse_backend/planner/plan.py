"""A plan: a strategy and its parameters, by which an operator runs on one graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..compiler.cache.bounded import KernelCache, shared
from ..frozen import dataclass

STRATEGIES: dict[str, type[Plan]] = {}
"""Strategies by their names in records."""


@dataclass(frozen=True)
class Plan:
    """A member of the kernel family: its class is the strategy, its fields are the parameters of that.

    What it computes does not depend on it beyond the order of additions. A strategy says when the rules choose it, what
    else is worth trying, what it costs, and why, in words; an executable says that it runs its plans (`builds`).

    A plan prints in a few words. meanings: what these stand for. order: what of the plan decides the order of
        additions, and is not chosen by rules alone. groups: row groups of the parallel loop, 1 for one thread.
        balance: what the groups hold equally much of: "nonzeros" or "rows" (Huang et al., section 3.2), or "teams",
        where every row is a group. late: where its executables are that few processes need (``ops.LATE``), "" where
        the operators bring them. counted: whether the cost model knows its units, which ``counts`` has.
    """

    strategy: ClassVar[str]
    meanings: ClassVar[Mapping[str, str]] = {}
    order: ClassVar[Hashable] = None
    late: ClassVar[str] = ""
    counted: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def groups(self) -> int: ...

        @property
        def balance(self) -> str: ...

        @property
        def otherwise(self) -> Plan:
            """What runs where an operator refuses the strategy."""

        @property
        def _hash(self) -> int: ...

    def __init_subclass__(cls, strategy: str = "") -> None:
        setattr(cls, "__hash__", Plan.__hash__)  # noqa: B010  (a dataclass would make its own)
        if strategy:
            cls.strategy = strategy
            STRATEGIES[strategy] = cls

    def __post_init__(self) -> None:
        # every call looks its kernel up by its plan
        object.__setattr__(self, "_hash", hash((type(self), *vars(self).values())))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def rule(cls, problem: Any) -> Any:
        """The plan of the rules, None where they do not choose this strategy."""

    @classmethod
    def candidates(cls, problem: Any, first: Any) -> Iterable[Any]:
        """What is worth comparing with ``first``, the plan of the rules."""
        return ()

    def counts(self, problem: Any) -> dict[str, float]:
        """How many of each unit of the cost model there are."""
        raise NotImplementedError

    def reasons(self, problem: Any) -> Iterator[str]:
        """Sentences on the plan, which is that of the rules for the problem."""
        raise NotImplementedError

    def legend(self) -> dict[str, str]:
        """What the words of the plan stand for."""
        found: dict[str, str] = {}
        for each in reversed(type(self).__mro__):
            found |= vars(each).get("meanings", {})
        return found


_plans: KernelCache[Plan, Plan] = shared("plans")


def interned(plan: Plan) -> Plan:
    """The one object for equal plans: every call looks its kernel up by its plan, and comparing two takes longer than
    that.
    """
    found = _plans.get(plan)
    return _plans.keep(plan, plan) if found is None else found
