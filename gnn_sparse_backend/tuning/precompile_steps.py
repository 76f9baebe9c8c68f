"""What ``precompile`` prepares: an operator by name, at one width, on one structure."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from ..ops.core.plans import forget_plans
from ..ops.core.prepared import KINDS, Prepared, Width
from ..ops.message.executables.one_pass import expect_use
from ..planner.cpu.listed import FEW
from ..runtime.devices import check_kernels
from ..structures.graph import Graph
from .tuning_tasks import Task, random_tensor, tasks_of


class Step:
    """An operator at one width on one structure: what is measured of it, and the user's own call with its gradients.

    name: of the structure. tasks: what is measured, and has a plan each; none where there is nothing to choose. ready:
    whether the call was made, so that the next one compiles nothing. size: bytes of the operands, the result and their
    gradients, about.

    Raises as ``tasks_of``.
    """

    def __init__(self, name: str, operator: Prepared, structure: Any, width: Width, dtype: torch.dtype, backward: bool):
        self.name, self.operator, self.structure = name, operator, structure
        self.width, self.dtype, self.backward = width, dtype, backward
        self.device = structure.device
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
            self._prepare_few()
        self.ready = True

    def _prepare_few(self) -> None:
        """Compile what layers run on a structure of a few edges."""
        features = self.width if isinstance(self.width, int) else prod(self.width)
        edges = KINDS[self.operator.on].count(self.structure)
        if self.operator.few is None or self.device.type != "cpu" or edges * features > FEW.features:
            return
        for flat in self.operator.few(self.width, self.dtype):
            if self.backward:
                flat.prepare_gradients()
