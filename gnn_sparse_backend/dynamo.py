"""PyTorch's compilers, Dynamo and Inductor, which learn what they have to know of this package when they are imported.

Their import takes seconds and hundreds of megabytes, and a process that compiles nothing needs none of it. PyTorch
imports them when it is first asked to compile; what this package wants of them waits until then (`when_imported`).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, TypeVar, cast
from weakref import WeakSet

import torch

__all__ = ["DYNAMO", "imported", "not_traced", "skip_code", "when_imported"]

DYNAMO = "torch._dynamo"
F = TypeVar("F", bound=Callable[..., Any])
_waiting: dict[str, list[Callable[[], object]]] = {}


def when_imported(name: str, run: Callable[[], object]) -> None:
    """Run a function once, when a module has been imported: now, if that is so, else as a part of its import."""
    if imported(name) is not None:
        run()
        return
    _waiting.setdefault(name, []).append(run)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def imported(name: str) -> Any:
    """A module, if somebody has imported it; else None. Another thread that is at it is waited for."""
    return importlib.import_module(name) if name in sys.modules else None


class _Finder(MetaPathFinder):
    """Finds awaited modules as the finders behind it do, and has what waits for them run behind their code."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        others = (each for each in list(sys.meta_path) if each is not self)
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and spec.loader is not None:
            _run_behind(spec.loader)
        return spec


_FINDER = _Finder()


def _run_behind(loader: Any) -> None:
    """Have a loader, once, run what waits for a module behind the module's code."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.exec_module = execute
        execute(module)
        for run in _waiting.pop(module.__name__, ()):
            run()
        if not _waiting and _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)

    loader.exec_module = exec_module


class _Untraced:
    """A function that Dynamo leaves alone.

    called: the function itself, and once there is a Dynamo what that makes of it.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = self.called = function

    def disable(self) -> None:
        self.called = torch.compiler.disable(self.function)


_untraced: WeakSet[_Untraced] = WeakSet()


def not_traced(function: F) -> F:
    """``torch.compiler.disable``, which would import Dynamo for it."""
    found = _Untraced(function)

    @functools.wraps(function)
    def calling(*args: Any, **kwargs: Any) -> Any:
        return found.called(*args, **kwargs)

    # the marks of what PyTorch has disabled: a program ends at a call, and who unwraps it finds the function
    calling._torchdynamo_disable = True  # type: ignore[attr-defined]
    calling._torchdynamo_disable_msg = None  # type: ignore[attr-defined]
    calling._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    skip_code(calling.__code__)  # type: ignore[attr-defined]
    _untraced.add(found)
    if imported(DYNAMO) is not None:
        found.disable()
    return cast(F, calling)


def skip_code(code: CodeType) -> None:
    """Have Dynamo compile no program of a function's code; what that calls, and who calls it, is compiled as before."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "skip_code"):  # before PyTorch 2.7
        eval_frame.skip_code(code)
        return
    action, strategy = (getattr(eval_frame, name) for name in ("_FrameAction", "_FrameExecStrategy"))
    eval_frame.set_code_exec_strategy(code, strategy(action.SKIP, action.DEFAULT))


def _disable_all() -> None:
    for each in list(_untraced):
        each.disable()


when_imported(DYNAMO, _disable_all)
