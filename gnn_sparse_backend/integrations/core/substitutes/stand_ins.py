"""Modules that stand for ones that are not there, so that what imports them can be imported.

DGL 2 imports ``dgl.graphbolt``, a library of its own that was built for a few releases of PyTorch, and torchdata as it
was once. Nothing else of DGL needs either.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ....extras import how_to_install

_log = logging.getLogger(__name__)
GRAPHBOLT = "dgl.graphbolt"
TO_C = ("dgl._ffi", "dgl._api_internal")
"""DGL's interface to C."""


class StandIn(ModuleType):
    """A module whose every public name is a class that cannot be made. why: what stands in the way, in words."""

    def __init__(self, name: str, why: str):
        super().__init__(name, f"Stands for {name}: {why}")
        self.__dict__["_why"] = why

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        made = _Missing(name, (), {"__module__": self.__name__, "_why": self._why})
        setattr(self, name, made)
        return made


class _Missing(type):
    """The type of what a stand-in has. Using one, or what would be in it, says why it is not there."""

    _why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImportError(f"{cls.__module__}.{cls.__name__} cannot be used here: {cls._why}")

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"{cls.__module__}.{cls.__name__}.{name} cannot be used here: {cls._why}")


def import_dgl() -> str:
    """Import DGL, with a stand-in for ``dgl.graphbolt`` where that does not load. Returns why it does not, or nothing.
    Raises ImportError that says what DGL lacks.
    """
    if "dgl" not in sys.modules:
        _import()
    graphbolt = sys.modules.get(GRAPHBOLT)
    return graphbolt.__dict__["_why"] if isinstance(graphbolt, StandIn) else ""


def _import() -> None:
    _forget_halves()
    try:
        importlib.import_module("dgl")
        return
    except (ImportError, OSError) as error:
        if not _has_graphbolt():
            raise _refused(error) from error
        why = f"DGL's GraphBolt does not load beside this PyTorch ({_line_of(error)}); all else of DGL works without it"
    stand_in = StandIn(GRAPHBOLT, why)
    _forget_halves()
    sys.modules[GRAPHBOLT] = stand_in
    try:
        dgl = importlib.import_module("dgl")
    except (ImportError, OSError) as error:
        _forget_halves()
        raise _refused(error) from error
    dgl.graphbolt = stand_in
    for name in TO_C:
        setattr(dgl, name.rpartition(".")[2], sys.modules[name])
    _log.info("%s", why)


def _forget_halves() -> None:
    """Forget the modules of a DGL that was not imported to its end: a new one would not know them as its own.

    Its interface to C stays: an extension is initialised once, and goes on raising the ``DGLError`` that it knows.
    """
    for name in list(sys.modules):
        if name.startswith("dgl.") and not f"{name}.".startswith(tuple(f"{kept}." for kept in TO_C)):
            del sys.modules[name]


def _has_graphbolt() -> bool:
    spec = importlib.util.find_spec("dgl")
    return spec is not None and any((Path(at) / "graphbolt").is_dir() for at in spec.submodule_search_locations or ())


def _refused(error: Exception) -> ImportError:
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    remedy = f"pip install {missing.partition('.')[0]}" if missing else how_to_install("dgl")
    version = importlib.metadata.version("dgl")
    return ImportError(f"cannot enable 'dgl': DGL {version} cannot be imported: {_line_of(error)}; {remedy}")


def _line_of(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
