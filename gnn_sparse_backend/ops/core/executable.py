"""What a final plan becomes: something that runs, and can show its kernels. On a graph that is not converted that is a
kernel over its edges as they are listed, whatever is planned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from ... import ops
from ...compiler.cache.bounded import KernelCache
from ...compiler.cache.kernel import Kernel, constant_argument
from ...compiler.codegen import host_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program
from ...compiler.own_schedules import in_force
from ...compiler.schedules.sequence import Schedule
from ...deferred import import_module
from ...planner.cpu.listed import pays_to_convert
from ...planner.plan import Plan
from ...runtime.threads import planned_threads
from ...structures.csr import EdgeList
from ...structures.derived import untransformed
from .arguments import edge_arguments
from .last_run import note


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


_builders: dict[tuple[type, type], Any] = {}
_Class = TypeVar("_Class")


def builds(spec: type, *strategies: type[Plan]) -> Callable[[_Class], _Class]:
    """Decorator: this class, or function, makes executables of plans of these strategies for specs of such a type."""

    def add(executable: _Class) -> _Class:
        _builders.update(((spec, strategy), executable) for strategy in strategies)
        return executable

    return add


def executable_of(spec: Any, plan: Plan) -> Any:
    """What makes executables of such a plan for what a spec describes, or None."""
    found = _builders.get((type(spec), type(plan)))
    if found is None:
        for module in ops.LATE.get(plan.late, ()):  # imported once, and waited for by every thread
            import_module(f"{ops.__name__}.{module}")
        found = _builders.get((type(spec), type(plan)))
    return found


def executables_of(spec: Any) -> Iterator[Any]:
    """All that makes executables for what a spec describes, as far as it is imported, each once."""
    return iter({made: None for (of, _), made in list(_builders.items()) if of is type(spec)})


def build(spec: Any, plan: Plan) -> Executable:
    """The executable of a final plan for what a spec describes."""
    executable: Executable = executable_of(spec, plan)(spec, plan)
    return executable


class Launch:
    """A kernel by itself: a call runs it, and notes that.

    plan: what the planner or rules have chosen, or in words. names: those of the kernel's parameters, where arguments
    are given by name.
    """

    __slots__ = ("_entry", "kernels", "names", "plan")

    def __init__(self, kernel: Kernel, plan: Plan | str, names: tuple[str, ...] = ()) -> None:
        self._entry, self.kernels, self.plan, self.names = kernel.entry, (kernel,), plan, names

    def __call__(self, *arguments: Any) -> None:
        note(self, "")
        self._entry(*arguments)

    def run(self, *given: Mapping[str, Any]) -> None:
        """Call the kernel with what these have of its parameters."""
        self(*self.arguments(*given))

    def arguments(self, *given: Mapping[str, Any]) -> list[Any]:
        """What these have of the kernel's parameters, in their order."""
        known = {name: x for each in given for name, x in each.items()}
        return [known[name] for name in self.names]

    def bind(self, given: Mapping[str, Any], own: Sequence[str]) -> Callable[..., None]:
        """What calls the kernel with these arguments at every call, and those of the names ``own``, in their order."""
        arguments = self.bound(given, own)
        return lambda *values: self(*arguments(*values))

    def bound(self, given: Mapping[str, Any], own: Sequence[str]) -> Callable[..., list[Any]]:
        """What gives all arguments of `bind`."""
        constant = {name: constant_argument(x) if isinstance(x, Tensor) else x for name, x in given.items()}
        known = [None if name in own else constant[name] for name in self.names]
        places = [self.names.index(name) for name in own]

        def arguments(*values: Tensor) -> list[Any]:
            found = known.copy()
            for at, x in zip(places, values):
                found[at] = x
            return found

        return arguments


def compiled(program: Program, schedule: Schedule, plan: Plan | str) -> Launch:
    """What runs the kernel of a program on this CPU."""
    return Launch(compile_program(program, schedule, host_target()), plan, program.parameter_names)


def in_threads(parallel: bool) -> str:
    """How a kernel of the CPU runs, in words."""
    return "several threads" if parallel else "1 thread"


class OnEdges(Launch):
    """A kernel over arrays at the edges alone (`Executable`)."""

    __slots__ = ()

    def __call__(self, graph: Any, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        arguments = edge_arguments(graph, self.plan, graph.edge_ids, results[0].shape[0])
        super().__call__(*arguments, *operands, *results)


class OutOfRange(IndexError):
    """An edge names a node that is not there."""


class _Wrong(threading.local):
    """Where kernels of a thread count edges that are out of range."""

    def __init__(self) -> None:
        self.read = np.zeros(1, np.int64)
        self.count = untransformed(torch.from_numpy, self.read)


wrong = _Wrong()


def settle_list(graph: Any, operands: Sequence[Tensor | None]) -> None:
    """Convert a graph that is listed, where rows pay for themselves from a pass over such operands on, or a user's
    schedule is in force: loops over listed edges have none.
    """
    features = max([x.numel() // max(x.shape[0], 1) for x in operands if x is not None and x.dim()], default=1)
    if in_force.schedules or pays_to_convert(graph.listed, *graph.shape, features, planned_threads()):
        graph.indptr  # noqa: B018  (asked for, it is made)


class OnList(Launch):
    """A kernel over listed edges (`Executable`)."""

    __slots__ = ()

    def __init__(self, kernel: Kernel):
        super().__init__(kernel, "edges as they are listed, 1 thread")

    def __call__(self, graph: Any, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Raises OutOfRange where an edge is."""
        self.launch(graph.listed, False, operands, *results)

    def launch(self, edges: EdgeList, transposed: bool, operands: Sequence[Tensor], *results: Tensor) -> None:
        """Run over a list, over its edges reversed where ``transposed``. Raises OutOfRange where an edge is."""
        row, col = edges.read()
        rows, columns = edges.shape
        if transposed:
            row, col, rows, columns = col, row, columns, rows
        count = wrong
        note(self, "")
        self._entry(rows, columns, row.shape[0], row, col, *operands, *results, count.count)
        if count.read[0]:
            raise OutOfRange(
                f"{count.read[0]} of {row.shape[0]} edges are out of range: there are {rows} destinations and "
                f"{columns} sources"
            )
