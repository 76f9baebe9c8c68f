"""Schedules of users in the place of this package's: which are in force, and what they make of a kernel's.

A kernel that may have one asks `chosen` before it is compiled. What keeps such kernels does so by `in_force.generation`
(or is decorated with `kept_by_schedules`), a number that grows with every change: what was made before it is not met
again, by no thread, and a call that found its kernels while nothing was in force looks up one number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from ..frozen import dataclass
from .cache.bounded import kept_within
from .compile import stage3
from .language.axes import StageIError
from .language.definition import digest_of
from .language.program import Program
from .schedules.sequence import Schedule, Step, is_for_gpu, of_stage, scheduled_by

Width: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class KernelRequest:
    """A kernel that is wanted.

    Attributes:
        operators: names of the operators that it is a kernel of, the most particular first: ("weighted_sum", "spmm",
            "aggregate").
        dtype: of its values, as "float32".
        features: the width of a row of the result; (F_in, F_out) where rows are multiplied by matrices.
        reduce: the name of the reduction over edges; "" where there is none.
        device: "cpu" or "cuda".
        arch: of the GPU, as "sm_90"; "" for a CPU.
        program: of stage I, tiled as the schedule wants it. Steps name its iterations and buffers.
        spec: what its family knows of it, for messages the message and its operands. It may change.
    """

    operators: tuple[str, ...]
    dtype: str
    features: Width
    reduce: str
    device: str
    arch: str
    program: Program
    spec: Any

    def __str__(self) -> str:
        return f"{self.operators[0]} of {self.features} features ({self.dtype}) on {self.arch or self.device}"


OwnFunction: TypeAlias = Callable[[Schedule, KernelRequest], Schedule | None]
WHICH = "dtype", "features", "reduce", "device", "arch"
"""What of a request a schedule may be restricted by."""


class OwnSchedule:
    """A user's function that schedules kernels of an operator, from when it is made until `remove` or the end of a
    ``with`` block.
    """

    def __init__(self, operator: str, function: OwnFunction, which: dict[str, Any]) -> None:
        self.operator, self.function, self.which = operator, function, which
        self.version = digest_of(function)
        in_force.add(self)

    def remove(self) -> None:
        """Let kernels be scheduled as before. Does nothing where that was done."""
        in_force.discard(self)

    def __enter__(self) -> OwnSchedule:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__qualname__", self.function)).rpartition("<locals>.")[2]

    def takes(self, operators: tuple[str, ...], *which: Any) -> bool:
        """Whether it is for such a kernel, of these operators, and of what ``WHICH`` names."""
        own = dict(zip(WHICH, which))
        return self.operator in operators and all(own[name] == value for name, value in self.which.items())

    def __repr__(self) -> str:
        which = "".join(f", {name}={value!r}" for name, value in self.which.items())
        return f"gsb.schedule({self.operator!r}, {self.name}{which})"


class InForce:
    """The schedules of users that are in force in this process.

    Attributes:
        schedules: in the order in which they were made.
        generation: how often they have changed. It grows behind a change: what is kept under a generation was made by
            the schedules of it, or of a later one, and then nobody looks for it any more.
    """

    __slots__ = ("_guard", "generation", "schedules")

    def __init__(self) -> None:
        self.schedules: tuple[OwnSchedule, ...] = ()
        self.generation = 0
        self._guard = threading.Lock()

    def add(self, own: OwnSchedule) -> None:
        """Put one in force, before those that are."""
        with self._guard:
            self.schedules = (*self.schedules, own)
            self.generation += 1

    def discard(self, own: OwnSchedule) -> None:
        """Put one out of force."""
        with self._guard:
            if own in self.schedules:
                self.schedules = tuple(each for each in self.schedules if each is not own)
                self.generation += 1

    def renew(self) -> None:
        """Have everything that is kept under a generation made anew."""
        with self._guard:
            self.generation += 1

    def of(self, *operators: str) -> tuple[OwnSchedule, ...]:
        """Return those for kernels of an operator, by any of its names."""
        return tuple(own for own in self.schedules if own.operator in operators)


in_force = InForce()


def in_words(schedules: tuple[OwnSchedule, ...]) -> tuple[str, ...]:
    """A line for each, the one that is asked first before the others."""
    return tuple(f"schedule: by {own!r}" for own in reversed(schedules))


Described: TypeAlias = Callable[[Any], tuple[tuple[str, ...], str, Width, str]]
_described: dict[type, Described] = {}
SCHEDULED: set[str] = set()
"""Names of operators whose kernels may have a schedule of the user's."""


def describes(spec: type, *operators: str) -> Callable[[Described], Described]:
    """Make a function say of specs of a type what a `KernelRequest` is to have: operators, dtype, features, reduce.

    operators: all that it may name.
    """

    def add(function: Described) -> Described:
        _described[spec] = function
        SCHEDULED.update(operators)
        return function

    return add


kept_by_schedules = kept_within(in_force)
"""Decorator that memoises a function of shapes and types which makes kernels that may have a schedule of the user's."""


def chosen(spec: Any, program: Program, schedule: Schedule, arch: str = "") -> Schedule:
    """Return the schedule of a kernel: the last one in force that is for it and gives one, else ``schedule``.

    Args:
        spec: what is static in the kernel, of a type that `describes` knows.
        program: of stage I.
        schedule: this package's.
        arch: of the GPU that it is for; "" for the CPU.

    Raises:
        TypeError: a user's function gave what is no schedule.
        StageIError: it raised an error, or what it gave does not apply to the program.
    """
    if not in_force.schedules:
        return schedule
    operators, dtype, features, reduce = _described[type(spec)](spec)
    device = "cuda" if arch else "cpu"
    request = KernelRequest(operators, dtype, features, reduce, device, arch, program, spec)
    for own in reversed(in_force.schedules):
        if own.takes(operators, dtype, features, reduce, device, arch):
            found = _given(own, request, schedule)
            if found is not None:
                return found
    return schedule


def is_scheduled(spec: Any) -> bool:
    """Whether a schedule in force is for kernels of a spec on the CPU. Nobody asks it whether it gives one."""
    if not in_force.schedules:
        return False
    described = _described[type(spec)](spec)
    return any(own.takes(*described, "cpu", "") for own in in_force.schedules)


def _given(own: OwnSchedule, request: KernelRequest, schedule: Schedule) -> Schedule | None:
    """What a user's function makes of a schedule, applied once so that errors are met before anything runs."""
    where = f"{own!r} for {request}"
    try:
        found = own.function(schedule, request)
    except Exception as error:
        raise StageIError(f"{where} raised {type(error).__name__}: {error}") from error
    if found is None:
        return None
    if not isinstance(found, tuple | list) or not all(isinstance(step, Step) for step in found):
        wrong = next((x for x in found if not isinstance(x, Step)), found) if isinstance(found, tuple | list) else found
        raise TypeError(
            f"{where} gave {wrong!r:.200} of type {type(wrong).__name__}: give a sequence of steps, which primitives "
            "called with their parameters are, or None for the default"
        )
    steps = *found, scheduled_by(own.name, own.version)
    if is_for_gpu(steps) != bool(request.arch):
        other = "that put no loop on threads of a GPU" if request.arch else "for a GPU"
        raise StageIError(f"{where} gave steps {other}: {steps!r:.500}")
    try:
        program = request.program
        for step in of_stage(steps, 1):
            program = step(program)
        before, after = (_parameters(each) for each in (request.program, program))
        if before != after:
            raise StageIError(f"parameters {', '.join(before)} became {', '.join(after)}")
        stage3(request.program, steps)
    except Exception as error:  # TVM raises many kinds
        raise StageIError(
            f"{where} gave a schedule that does not apply: {type(error).__name__}: {error}\nits steps: {steps!r:.1000}"
        ) from error
    return steps


def _parameters(program: Program) -> tuple[str, ...]:
    types = {buffer.name: f": {buffer.dtype}" for buffer in program.parameters}
    return tuple(name + types.get(name, "") for name in program.parameter_names)
