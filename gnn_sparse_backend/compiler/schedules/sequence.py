"""A schedule is a sequence of primitives, each of which rewrites a program at one of its stages.

    schedule = cpu_schedule(prefetch_gather("edges", "X", 0, 32, 16), unroll_and_jam("rows", 4))

A primitive is a documented function that takes what it rewrites and its parameters. Decorated with `primitive` it takes
its parameters alone, and gives the `Step` that a schedule holds. (Exo calls such functions scheduling operators:
Ikarashi et al., PLDI 2022, section 3; here a schedule is a value, because it is part of what a kernel is kept under.)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeAlias

from ...frozen import dataclass
from ..language.definition import digest_of, is_own
from ..language.program import Iteration, Program
from ..position.function import PositionFunction

P = ParamSpec("P")


@dataclass(frozen=True)
class Step:
    """A primitive with its parameters.

    Attributes:
        rewrite: takes what it rewrites, the parameters, and the keyword ``instructions`` where it has such.
        arguments: the parameters by position.
        named: those by name, in the order of names.
        stage: which it rewrites: a `Program` (1), a `PositionFunction` (2), or a flat function and its program (3).
        on_gpu: it puts loops on blocks or threads of a GPU.
        has_instructions: it uses instructions that only a GPU has; told not to, it writes loops that run anywhere.
        version: a digest of the code of a primitive that is not this package's, whose kernels are compiled anew when
            it changes; what it reads beside its parameters should not.
        lanes_apart: it gives each lane of a team elements of its own of the iteration that its first argument names.
    """

    rewrite: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    stage: int
    on_gpu: bool
    has_instructions: bool
    version: str = ""
    lanes_apart: bool = False

    def __call__(self, *subject: Any, instructions: bool = True) -> Any:
        """Return the rewritten function.

        subject: what it rewrites, which at stage III is the function and its program.
        """
        named = dict(self.named)
        if self.has_instructions and not instructions:
            named["instructions"] = False
        return self.rewrite(*subject, *self.arguments, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled as the call that made it: a module has the primitive by the name of what rewrites."""
        return _step_of, (self.rewrite.__module__, self.rewrite.__qualname__, self.arguments, self.named)

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.rewrite.__name__

    def __repr__(self) -> str:
        told = [repr(argument) for argument in self.arguments] + [f"{name}={value!r}" for name, value in self.named]
        version = f"[{self.version}]" if self.version else ""
        return f"{self.name}{version}({', '.join(told)})"


def _step_of(module: str, name: str, arguments: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> Step:
    __import__(module)
    made: Step = attrgetter(name)(sys.modules[module])(*arguments, **dict(named))
    return made


Schedule: TypeAlias = tuple[Step, ...]
"""Steps, in the order in which they are applied to each stage."""
OfIteration: TypeAlias = Callable[Concatenate[PositionFunction, Iteration, P], PositionFunction]


def primitive(
    stage: int = 2, on_gpu: bool = False, instructions: bool = False, lanes_apart: bool = False
) -> Callable[[Callable[Concatenate[Any, P], Any]], Callable[P, Step]]:
    """Make a function a primitive: called with its parameters alone it gives a step. Arguments are those of `Step`."""

    def decorate(rewrite: Callable[Concatenate[Any, P], Any]) -> Callable[P, Step]:
        own = is_own(rewrite)

        @functools.wraps(rewrite)
        def step(*arguments: P.args, **named: P.kwargs) -> Step:
            order = tuple(sorted(named.items()))
            version = "" if own else digest_of(rewrite)  # not before: what it calls may be defined behind it
            return Step(rewrite, arguments, order, stage, on_gpu, instructions, version, lanes_apart)

        return step

    return decorate


def iteration_primitive(
    on_gpu: bool = False, instructions: bool = False, lanes_apart: bool = False
) -> Callable[[OfIteration[P]], Callable[Concatenate[str, P], Step]]:
    """Make a function a primitive of stage II whose first parameter is an iteration, which a step names."""

    def decorate(rewrite: OfIteration[P]) -> Callable[Concatenate[str, P], Step]:
        def found(stage2: PositionFunction, name: str, /, *arguments: P.args, **named: P.kwargs) -> PositionFunction:
            return rewrite(stage2, stage2.program.iteration(name), *arguments, **named)

        functools.update_wrapper(found, rewrite)
        return primitive(2, on_gpu, instructions, lanes_apart)(found)

    return decorate


def flat_primitive(rewrite: Callable[Concatenate[Any, Program, P], Any]) -> Callable[P, Step]:
    """Make a function a primitive of stage III, which takes the flat function and its program."""
    step: Callable[..., Step] = primitive(3)(rewrite)
    return step


@primitive()
def scheduled_by(stage2: PositionFunction, name: str, version: str) -> PositionFunction:
    """Change nothing, and let the kernel be kept by who scheduled it: a function of the user's, and its code's digest.

    A schedule ends with it; without one it is this package's.
    """
    return stage2


def author_of(schedule: Schedule) -> str:
    """The name of the user's function that wrote a schedule; "" where this package did."""
    return next((step.arguments[0] for step in schedule if step.name == scheduled_by.__name__), "")


def of_stage(schedule: Schedule, stage: int) -> Schedule:
    """The steps of a schedule that rewrite one stage, in their order."""
    return tuple(step for step in schedule if step.stage == stage)


def is_for_gpu(schedule: Schedule) -> bool:
    """Whether a step puts loops on blocks or threads of a GPU."""
    return any(step.on_gpu for step in schedule)
