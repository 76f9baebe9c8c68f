"""What the database of plans holds, and the check of everything that is read from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, asdict, fields
from typing import Any

from ..compiler.language.types import FLOATS
from ..frozen import dataclass
from .cost import DEFAULT_UNITS
from .plan import STRATEGIES, Plan
from .problem import CudaProblem, Problem

_BALANCES = "nonzeros", "rows"


@dataclass(frozen=True)
class Record:
    """The measured plans of a problem on one structure.

    machine: ``machine.machine_name``, or ``gpu.Gpu.machine``. versions: of what decides the code of kernels.
    fingerprint: of the structure.
    seconds: pairs of a plan and the seconds of a call, fastest first. created: when, in UTC.
    """

    machine: str
    versions: Mapping[str, str]
    fingerprint: str
    problem: Problem
    seconds: tuple[tuple[Plan, float], ...]
    created: str

    @property
    def best(self) -> Plan:
        return self.seconds[0][0]

    @property
    def key(self) -> tuple[Any, ...]:
        """What a record is found by, beside machine and versions."""
        return key_of(self.problem, self.fingerprint)

    def yields_to(self, other: Record) -> bool:
        """Whether ``other``, newer and of the same key, takes its place: not where it measured fewer plans, as a run
        that was cut short has.
        """
        return len(other.seconds) >= len(self.seconds)

    def to_json(self) -> dict[str, Any]:
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content["versions"] = dict(self.versions)
        content["problem"] = asdict(self.problem)
        content["seconds"] = [{"plan": _written(plan), "seconds": seconds} for plan, seconds in self.seconds]
        return content

    @classmethod
    def of(
        cls,
        problem: Problem,
        fingerprint: str,
        seconds: Mapping[Plan, float],
        machine: str,
        versions: Mapping[str, str],
        created: str,
    ) -> Record:
        """A record of measured seconds by plan, of which there must be one."""
        ordered = tuple(sorted(seconds.items(), key=lambda pair: pair[1]))
        return cls(machine, versions, fingerprint, problem, ordered, created)

    @classmethod
    def from_json(cls, content: object) -> Record:
        """The record that ``to_json`` wrote. Raises ValueError that says what is wrong with ``content``."""
        expected = {field.name for field in fields(cls)}
        content = _fields("a record", content, expected)
        for name in ("machine", "fingerprint", "created"):
            _text(name, content[name])
        versions = content["versions"]
        if not isinstance(versions, dict) or not all(isinstance(text, str) for text in versions.values()):
            raise ValueError(f"its versions are {versions!r:.80}")
        if not isinstance(content["seconds"], list) or not content["seconds"]:
            raise ValueError("it has no measured plan")
        seconds = []
        for pair in content["seconds"]:
            pair = _fields("a measured plan", pair, {"plan", "seconds"})
            seconds.append((_plan(pair["plan"]), _positive("seconds", pair["seconds"])))
        if seconds != sorted(seconds, key=lambda pair: pair[1]):
            raise ValueError("its plans are not in the order of their times")
        return cls(**{**content, "problem": _problem(content["problem"]), "seconds": tuple(seconds)})


def key_of(problem: Problem, fingerprint: str) -> tuple[Any, ...]:
    """What a record is found by: the sizes, the reach and the longest row follow from the structure of the
    fingerprint.
    """
    return fingerprint, problem.kind, problem.features, problem.dtype, problem.threads


def units_from_json(content: object) -> dict[str, float]:
    """Units of the cost model of a CPU or a GPU. Raises ValueError that says what is wrong with ``content``."""
    from .cuda.cost import UNITS

    names = UNITS if isinstance(content, dict) and "launch" in content else DEFAULT_UNITS
    content = _fields("the units of a machine", content, set(names))
    return {name: _positive(name, value, zero=True) for name, value in content.items()}


def _problem(content: object) -> Problem:
    of = CudaProblem if isinstance(content, dict) and "arch" in content else Problem
    content = _fields("its problem", content, {field.name for field in fields(of)})
    given = {field.name: _value(field, content[field.name]) for field in fields(of)}
    if given["dtype"] not in FLOATS:
        raise ValueError(f"its dtype is {given['dtype']!r:.80}, not one of {', '.join(FLOATS)}")
    return of(**given)


def _written(plan: Plan) -> dict[str, Any]:
    """A plan as `_plan` reads it: its strategy, and its parameters by name."""
    found = {field.name: getattr(plan, field.name) for field in fields(plan)}
    parameters = {name: _written(value) if isinstance(value, Plan) else value for name, value in found.items()}
    return {"strategy": plan.strategy, **parameters}


def _plan(content: object) -> Plan:
    name = content.get("strategy") if isinstance(content, dict) else None
    of = STRATEGIES.get(name) if isinstance(name, str) else None
    if of is None:
        of = all_strategies().get(name) if isinstance(name, str) else None
    if of is None:
        raise ValueError(f"the strategy of a plan is {name!r:.80}, not one of {', '.join(all_strategies())}")
    found = _fields("a plan", content, {"strategy", *(field.name for field in fields(of))})
    return of(**{field.name: _value(field, found[field.name]) for field in fields(of)})


def all_strategies() -> Mapping[str, type[Plan]]:
    """Strategies of all devices and of all products by their names in records: a process imports those that it uses."""
    from . import composed  # noqa: F401  (with them strategies have their names)
    from .cpu import products  # noqa: F401
    from .cpu import strategies as on_cpu  # noqa: F401
    from .cuda import strategies as on_gpu  # noqa: F401

    return STRATEGIES


def _value(field: Field[Any], value: Any) -> Any:
    """The value of a field of a problem or a plan, if it is of the type that the field says."""
    name, kind = field.name, getattr(field.type, "__name__", field.type)
    if kind == "str":
        _text(name, value)
    elif kind == "int":
        _count(name, value, 1 if name in ("groups", "partitions") else 0)
    elif kind != "bool":
        return _plan(value)
    elif type(value) is not bool:
        raise ValueError(f"its {name} is {value!r:.80}, not true or false")
    if name == "balance" and value not in _BALANCES:
        raise ValueError(f"the balance of a plan is {value!r:.80}, not one of {', '.join(_BALANCES)}")
    return value


def _fields(what: str, content: object, expected: set[str]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{what} is {content!r:.80}, not an object")
    if set(content) != expected:
        raise ValueError(
            f"{what} differs from what this version writes in {', '.join(sorted(set(content) ^ expected))}"
        )
    return content


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"its {name} is {value!r:.80}, not text")


def _count(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"its {name} is {value!r:.80}, not a whole number of at least {least}")


def _positive(name: str, value: object, zero: bool = False) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        if value > 0 or (value == 0 and zero):
            return float(value)
    raise ValueError(f"its {name} is {value!r:.80}, not a positive number")
