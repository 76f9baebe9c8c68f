"""What ran: the operators, plans, variants and kernels of the last calls of each thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from ...compiler.cache.kernel import Kernel
from ...frozen import dataclass

REMEMBERED = 64
"""Events that a thread remembers: an operator that was called, or kernels that ran for it."""


class _Recent(threading.local):
    def __init__(self) -> None:
        self.events: deque[Any] = deque(maxlen=REMEMBERED)


_recent = _Recent()


def note_operator(name: str) -> None:
    """An operator is called now; what `note` is told of belongs to it."""
    _recent.events.append(name)


def note(executable: Any, variant: str) -> None:
    """An executable runs now, by one of its variants."""
    _recent.events.append((executable, variant))


@dataclass(frozen=True)
class Step:
    """What one executable did. plan: what the planner chose, or rules; prints as in ``gsb.explain``. variant: which of
    the ways that a plan can run was taken at this call, "" where there is one. kernels: with their stages as text
    (`Kernel.script`).
    """

    plan: Any
    variant: str
    kernels: tuple[Kernel, ...]

    def __str__(self) -> str:
        names = ", ".join(
            f"{kernel.name} {kernel.key[:12]} for {kernel.target}"
            + (f", scheduled by {kernel.scheduled_by}" if kernel.scheduled_by else "")
            for kernel in self.kernels
        )
        return f"{self.plan}{f' ({self.variant})' if self.variant else ''}: {names}"


@dataclass(frozen=True)
class Run:
    """The last operator that ran in this thread, and its steps in order. Prints as text.

    operator: its name in ``torch.ops.gsb``.
    """

    operator: str
    steps: tuple[Step, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of all steps, each once."""
        return tuple(dict.fromkeys(kernel for step in self.steps for kernel in step.kernels))

    def __str__(self) -> str:
        steps = "\n".join(f"  {step}" for step in self.steps) or "  no kernel: there was nothing to compute"
        return f"gsb::{self.operator}\n{steps}"


def last_run() -> Run | None:
    """What the last call in this thread ran: its operator, the plan and the variant of each step, and the kernels.

        y = gsb.spmm(graph, x)
        print(gsb.last_run())                                  # operator, plan, variant, kernels
        print(gsb.last_run().kernels[0].script("assembly"))    # or "program", "stage2", "stage3"; of a GPU "ptx"

    A backward pass is a call of its own for each gradient: the last of them is told. On a GPU PyTorch makes them in
    another thread, in which a hook of a tensor runs too. None before the first call.
    """
    for run in last_runs():
        return run
    return None


def last_runs() -> Iterator[Run]:
    """What the last calls in this thread ran, the newest first, as far as they are remembered."""
    steps: list[Step] = []
    for event in reversed(list(_recent.events)):
        if isinstance(event, str):
            yield Run(event, tuple(reversed(steps)))
            steps = []
        else:
            executable, variant = event
            steps.append(Step(executable.plan, variant, tuple(executable.kernels)))
