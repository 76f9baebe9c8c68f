"""What ``precompile`` prepares: an operator by name, at one width, on one structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..ops.core.plans import forget_plans
from ..ops.message.executables.one_pass import expect_use
from ..ops.message.message_op import MessageOp
from ..runtime.devices import check_kernels
from ..structures.graph import Graph
from ..structures.kernel_map import KernelMap
from ..structures.relational.graph import RelGraph
from ..structures.segments import Segments
from .tuning_tasks import Task, random_tensor, tasks_of

Structure = Graph | RelGraph | Segments | KernelMap
Width = int | tuple[int, ...]

KINDS: dict[type, str] = {
    Graph: "a graph",
    RelGraph: "a gsb.RelGraph, or a graph with edge types",
    Segments: "a gsb.Segments",
    KernelMap: "a gsb.KernelMap",
}
"""What operators run on, in words."""


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator that can be prepared by its name.

    on: ``Graph``, ``RelGraph``, ``Segments`` or ``KernelMap``. width: names of the numbers that a width of it is made
    of. short: what one number alone stands for, in words; "" where it is no width. shapes: structure and width to the
    shapes of the operands, all of which want gradients. call: the user's own, on structure and operands. form: of what
    is measured; None where there is one plan alone. divided: whether the last number divides the others. transposes:
    whether the backward pass goes over the transpose of a graph.
    """

    name: str
    on: type
    width: tuple[str, ...]
    short: str
    shapes: Callable[[Structure, Width], list[tuple[int, ...]]]
    call: Callable[..., Tensor]
    form: MessageOp | None = None
    divided: bool = False
    transposes: bool = True

    def widths(self, given) -> tuple[Width, ...]:
        """``given`` as widths: one, or several in a list; in a tuple too, where it is none itself. ValueError quotes
        what is none.
        """
        one = isinstance(given, int) or (
            len(self.width) > 1 and isinstance(given, tuple) and all(isinstance(n, int) for n in given)
        )
        apart = (not one and hasattr(given, "__iter__") and not isinstance(given, str)) or given == ()
        several = tuple(given) if apart else (given,)
        found = tuple(dict.fromkeys(self._width(each) for each in several))
        if not found:
            raise ValueError(f"features names no width for {self.name}: give {self._wanted}")
        return found

    def _width(self, given) -> Width:
        numbers = (given,) if isinstance(given, int) else tuple(given) if isinstance(given, (tuple, list)) else ()
        fits = len(numbers) == len(self.width) or (len(numbers) == 1 and bool(self.short))
        if not fits or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers):
            raise ValueError(
                f"features of {self.name} must be {self._wanted}, of positive whole numbers, got {given!r}"
            )
        if self.divided and any(n % numbers[-1] for n in numbers[:-1]):
            raise ValueError(f"features of {self.name}: {self.width[-1]} must divide the others, got {given!r}")
        return numbers[0] if len(numbers) == 1 else numbers

    @property
    def _wanted(self) -> str:
        if len(self.width) == 1:
            return self.width[0]
        return f"({', '.join(self.width)})" + (f", or {self.short}" if self.short else "")


class Step:
    """An operator at one width on one structure: what is measured of it, and the user's own call with its gradients.

    name: of the structure. tasks: what is measured, and has a plan each; none where there is nothing to choose. ready:
    whether the call was made, so that the next one compiles nothing. size: bytes of the operands, the result and their
    gradients, about.

    Raises as ``tasks_of``.
    """

    def __init__(
        self, name: str, operator: Operator, structure: Structure, width: Width, dtype: torch.dtype, backward: bool
    ):
        self.name, self.operator, self.structure = name, operator, structure
        self.width, self.dtype, self.backward = width, dtype, backward
        self.device = device_of(structure)
        if self.device.type != "cpu":
            check_kernels("plans", self.device)
        self.tasks: list[Task] = []
        if operator.form is not None:
            self.tasks = tasks_of(structure, (operator.name,), (width,), dtype, backward)
        self.shapes = operator.shapes(structure, width)
        self.size = 3 * dtype.itemsize * sum(map(prod, self.shapes))
        self.ready = False
        if isinstance(structure, Graph):
            sides = (structure, structure.transpose()) if backward and operator.transposes else (structure,)
            for side in sides:
                expect_use(side)

    @property
    def words(self) -> str:
        """What a row of the report calls it."""
        return self.operator.name + (" and backward" if self.backward else "")

    def run(self) -> None:
        """Make the call and its gradients by the plans that are known now, all in this thread."""
        for task in self.tasks:
            forget_plans(task.graph)  # another graph of the same structure may have been measured
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(self.backward),
            torch.autograd.set_multithreading_enabled(False),
        ):
            operands = [
                random_tensor(shape, self.dtype, self.device).requires_grad_(self.backward) for shape in self.shapes
            ]
            out = self.operator.call(self.structure, *operands)
            if self.backward:
                torch.autograd.grad(out, operands, torch.ones_like(out))
        self.ready = True


def device_of(structure: Structure) -> torch.device:
    """Where the arrays of a structure are."""
    return structure.offsets.device if isinstance(structure, Segments) else structure.device


def is_empty(structure: Structure) -> bool:
    """Whether nothing runs on it."""
    if isinstance(structure, KernelMap):
        return not structure.num_pairs
    return not (structure.num_rows if isinstance(structure, Segments) else structure.num_edges)


def settled(features):
    """``features`` as they can be read more than once."""
    if isinstance(features, Mapping):
        return {name: settled(own) for name, own in features.items()}
    if isinstance(features, (str, tuple)) or not hasattr(features, "__iter__"):
        return features
    try:
        return list(features)
    except TypeError:  # a tensor without dimensions has __iter__, too
        raise TypeError(f"features must be a width, several in a list, or a dict, got {features!r}") from None


def widths_by_operator(features, operators: tuple[Operator, ...]) -> dict[Operator, tuple[Width, ...]]:
    """The widths of each operator. features: those of all, or a dict from the name of each to its own. Raises
    ValueError.
    """
    if not isinstance(features, Mapping):
        return {operator: operator.widths(features) for operator in operators}
    names = [operator.name for operator in operators]
    missing, more = [name for name in names if name not in features], [name for name in features if name not in names]
    if missing or more:
        raise ValueError(
            "features must have an entry for every operator in ops: "
            + (f"{missing[0]!r} is missing" if missing else f"{more[0]!r} is none of {', '.join(names)}")
        )
    return {operator: operator.widths(features[operator.name]) for operator in operators}


__all__ = ["KINDS", "Operator", "Step", "Structure", "Width", "device_of", "is_empty", "settled", "widths_by_operator"]
