"""The four ways to run one layer: under DGL and under PyG, each as it is and with the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import gnn_sparse_backend as gsb
from benchmarks.support.turns import Switched

BACKEND = "+gsb"


def name(framework: str, backend: bool) -> str:
    return framework + BACKEND if backend else framework


def framework_of(contender: str) -> str:
    return contender.removesuffix(BACKEND)


def names(frameworks: Iterable[str]) -> list[str]:
    """All contenders, each framework alone before itself with the backend."""
    return [name(framework, backend) for framework in frameworks for backend in (False, True)]


def ours(frameworks: Iterable[str]) -> tuple[str, ...]:
    """The contenders that are ours."""
    return tuple(name(framework, True) for framework in frameworks)


def context_of(contender: str) -> Callable[[], AbstractContextManager]:
    """What switches the backend on for a contender that has it, and does nothing for the others."""
    framework = framework_of(contender)
    return (lambda: gsb.enabled(framework)) if contender.endswith(BACKEND) else nullcontext


def switched(calls: Mapping[str, Callable[[], object]]) -> dict[str, Switched]:
    """``{contender: callable}`` ready for ``turns.in_turns``."""
    return {contender: Switched(call, context_of(contender)) for contender, call in calls.items()}
