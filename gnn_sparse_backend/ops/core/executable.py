"""What a final plan becomes: something that runs, and can show its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from ...compiler.cache.bounded import KernelCache
from ...compiler.cache.kernel import Kernel
from ...planner.plan import Plan


class Executable(Protocol):
    """A plan of one operator for operands of one shape and type, ready to run on any structure.

    plan: final; nobody revises it. kernels: those made so far.
    """

    plan: Plan

    @property
    def kernels(self) -> tuple[Kernel, ...]: ...

    def __call__(self, structure: Any, operands: Sequence[Tensor | None], results: list[Tensor]) -> None:
        """Fill the results, each (rows, features) or (edges, features)."""


MOST_OF_A_CALL = 64
"""Executables that are kept for a call: one for each plan, of which few differ by what graphs are like."""


def kept_by_plan() -> KernelCache[Any, Any]:
    """What keeps the executables of a call."""
    return KernelCache("executables of a call", MOST_OF_A_CALL)


Builder = Callable[[Any, Any], Executable]
_builders: dict[tuple[type, type], Builder] = {}


def builds(spec: type, plan: type) -> Callable[[Builder], Builder]:
    """Decorator: this builds the executables of plans of such a type for specs of such a type."""

    def add(builder: Builder) -> Builder:
        _builders[spec, plan] = builder
        return builder

    return add


def build(spec: Any, plan: Any) -> Executable:
    """The executable of a final plan for what a spec describes."""
    return _builders[type(spec), type(plan)](spec, plan)
