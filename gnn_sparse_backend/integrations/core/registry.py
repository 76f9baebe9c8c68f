"""Which frameworks are switched on: `enable`, `disable` and `enabled`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ... import config
from ...compiler.cache.errors import UnsafeCacheError, warn_unsafe
from ...deferred import import_module, no_collection
from ...extras import how_to_install
from ...runtime.allocator import keep_little, reuse_while_enabled
from ...spelling import meant
from .processes import leave_behind, take_along
from .substitutes.faces import FACES, give, take_away
from .substitutes.stand_ins import import_dgl


class _Framework(NamedTuple):
    activate: Callable[[], None]
    deactivate: Callable[[], None]


class _Builtin(NamedTuple):
    module: str  # of ours; offers activate() and deactivate()
    requirement: str  # the module that must be installed
    load: Callable[[], object] | None = None  # imports it, where that takes more than ``import``


_BUILTIN = {
    "dgl": _Builtin("gnn_sparse_backend.integrations.dgl", "dgl", import_dgl),
    "pyg": _Builtin("gnn_sparse_backend.integrations.pyg", "torch_geometric"),
    "flex_attention": _Builtin("gnn_sparse_backend.integrations.flex_attention", "torch.nn.attention.flex_attention"),
    "spconv": _Builtin("gnn_sparse_backend.integrations.spconv", "spconv"),
    "transformers": _Builtin("gnn_sparse_backend.integrations.transformers", "transformers"),
}

_TORCH = "gnn_sparse_backend.integrations.torch"

# Reentrant: importing a framework may run code that asks for the status.
_lock = threading.RLock()
_registered: dict[str, _Framework] = {}
IMMEDIATE: set[str] = set()
"""The frameworks of which everything is computed where it is asked for."""
_active: dict[str, _Framework] = {}  # in the order of enabling


class _Memory:
    """low: whether what is kept until the backward pass is kept small, where that takes time, and no memory beside what
    is in use at a time.
    """

    _low = False

    @property
    def low(self) -> bool:
        return self._low

    @low.setter
    def low(self, low: bool) -> None:
        self._low = low
        keep_little(low)


MEMORY = _Memory()
_LOW, _FAST = "low", "fast"


def register(name: str, activate: Callable[[], None], deactivate: Callable[[], None]) -> None:
    """Make `name` a framework that can be enabled.

    `activate` is called with nothing enabled under that name; if it raises, `deactivate` is called to take back
    what it did before that. `deactivate` must restore every attribute and may be called twice.

    Raises ValueError for the name of a framework of this package or of one that is enabled.
    """
    with _lock:
        if name in _BUILTIN or name in FACES or name in _active:
            raise ValueError(
                f"cannot register {name!r}: a framework of that name is "
                f"{'enabled' if name in _active else 'part of this package'}"
            )
        _registered[name] = _Framework(activate, deactivate)


def known_frameworks() -> tuple[str, ...]:
    """Every name that `enable` accepts, sorted; not all of them need be installed."""
    with _lock:
        return tuple(sorted({*_BUILTIN, *FACES, *_registered}))


def enabled_frameworks() -> tuple[str, ...]:
    """The frameworks that are switched on, in the order of enabling."""
    with _lock:
        return tuple(_active)


def enable(*names: str, deferred: bool | None = None, memory: str | None = None) -> None:
    """Route message passing of "dgl" or "pyg", the layers of "spconv", PyTorch's "flex_attention" on a CPU, or models
    of "transformers" with ``attn_implementation="gsb"`` to this package, for the whole process; or give this package
    for "MinkowskiEngine" or "torchsparse", which need not be installed: call this before the first import of one; and
    so for "torch_scatter", "torch_cluster", "torch_spline_conv", "torch_sparse" and "pyg_lib".

    While a framework is enabled, freed tensors' memory is kept for the next ones (``gsb.reuse_memory``), PyTorch's
    dropouts on a CPU are drawn faster, with the same bits, and processes that are started, those of loaders and of
    ``torch.multiprocessing`` among them, have it enabled, too. A folder of kernels that others can write is warned of.
    Enabling what is enabled changes nothing but ``deferred`` and ``memory``, where these are given. A DGL 2 whose
    GraphBolt does not load beside this PyTorch is imported without it: call this before, or in place of, ``import
    dgl``. Raises ValueError for an unknown name or ``memory`` and ImportError where the framework is not installed, or
    cannot be imported; nothing is enabled then that was not before.

    Args:
        names: of one framework or of several.
        deferred: whether what a layer computes for every edge may wait until it is known what for, and then become a
            part of one kernel. With False everything is computed where it is asked for, by kernels of this package all
            the same: the first thing to try where something looks odd. By default as ``GSB_DEFERRED`` says, else True.
        memory: ``"low"`` keeps what rectified units and dropouts between layers need for their gradients in a bit for
            each number, for all frameworks until none is enabled or ``"fast"`` is asked for; see also
            ``gsb.checkpoint_layers``. No result changes.
    """
    _check_names("enable", names)
    if memory not in (None, _LOW, _FAST):
        raise ValueError(f"memory must be {_LOW!r} or {_FAST!r}, got {memory!r}")
    with _lock:
        before = tuple(_active)
        if not before:
            _check_cache()
        try:
            for name in names:
                _enable(name, deferred)
        except BaseException:
            for name in reversed(tuple(_active)):
                if name not in before:
                    disable(name)
            raise
        if memory is not None:
            MEMORY.low = memory == _LOW


def _check_cache() -> None:
    """Say at once, and not at the first layer, that kernels will not be kept on disk."""
    from ...compiler.cache.disk import cache_dir
    from ...compiler.cache.folders import check_root

    try:
        with contextlib.suppress(OSError):  # what cannot be looked at is not used, which the first kernel says
            check_root(cache_dir())
    except UnsafeCacheError as error:
        warn_unsafe(error)


def _enable(name: str, deferred: bool | None) -> None:
    if name in _active:
        if deferred is not None:
            _defer(name, deferred)
        return
    framework = _find(name)
    _defer(name, config.DEFERRED.get() is not False if deferred is None else deferred)
    try:
        with no_collection:
            framework.activate()
    except BaseException:
        framework.deactivate()
        raise
    _active[name] = framework
    with no_collection:
        _while_enabled(True)


def disable(name: str | None = None) -> None:
    """Switch the framework `name` off, or all of them, and restore every attribute that was replaced.

    Disabling what is not enabled changes nothing. Raises ValueError for an unknown name.
    """
    with _lock:
        if name is not None:
            _check_name(name)
        # The last one enabled goes first, so that patches of one attribute by two frameworks unwind in order.
        for each in reversed(tuple(_active)):
            if name is None or each == name:
                _active.pop(each).deactivate()
        MEMORY.low = MEMORY.low and bool(_active)
        _while_enabled(bool(_active))


@contextlib.contextmanager
def enabled(*names: str, deferred: bool | None = None, memory: str | None = None) -> Iterator[None]:
    """Enable `names` inside a `with` block; at its end each is switched as it was at its beginning.

    deferred, memory: as of `enable`.
    """
    _check_names("enabled", names)
    with _lock:
        before = {name: (name in _active, name not in IMMEDIATE) for name in names}
        low = MEMORY.low
    try:
        for name in names:
            enable(name, deferred=deferred, memory=memory)
        yield
    finally:
        for name, (active, deferring) in reversed(before.items()):
            if active:
                enable(name, deferred=deferring)
            else:
                disable(name)
        MEMORY.low = low and bool(_active)


def _defer(name: str, deferred: bool) -> None:
    (IMMEDIATE.discard if deferred else IMMEDIATE.add)(name)


def _while_enabled(held: bool) -> None:
    """What goes with any framework, while one is enabled."""
    reuse_while_enabled(held)
    leave_behind()
    if held:
        take_along(_enabled_here, enable)
        import_module(_TORCH).activate()
    elif _TORCH in sys.modules:
        sys.modules[_TORCH].deactivate()


def _enabled_here() -> tuple[tuple[str, dict[str, Any]], ...]:
    """The frameworks of this package that are enabled, and how."""
    memory = _LOW if MEMORY.low else _FAST
    names = (name for name in enabled_frameworks() if name not in _registered)
    return tuple((name, {"deferred": name not in IMMEDIATE, "memory": memory}) for name in names)


def _check_names(what: str, names: tuple[str, ...]) -> None:
    if not names:
        raise ValueError(f"{what}() needs the name of a framework: one of {', '.join(known_frameworks())}")
    for name in names:
        _check_name(name)


def _check_name(name: str) -> None:
    if name not in known_frameworks():
        known = known_frameworks()
        raise ValueError(f"unknown framework {name!r}: choose one of {', '.join(map(repr, known))}{meant(name, known)}")


def _find(name: str) -> _Framework:
    _check_name(name)
    if name in _registered:
        return _registered[name]
    if name in FACES:
        return _Framework(functools.partial(give, name), functools.partial(take_away, name))
    builtin = _BUILTIN[name]
    if importlib.util.find_spec(builtin.requirement) is None:
        raise ImportError(f"cannot enable {name!r}: {builtin.requirement} is not installed; {how_to_install(name)}")
    if builtin.load is not None:
        builtin.load()
    module = import_module(builtin.module)
    return _Framework(module.activate, module.deactivate)
