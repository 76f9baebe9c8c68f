"""Where traced programs come in: Inductor's passes while a framework is enabled, before autograd and behind it, and
``gsb.compile``.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from ...dynamo import DYNAMO, imported, when_imported

NAME = "torch.compile"
"""What calls are counted under that belong to no framework."""

_ROOMS = ".", "../lazy", "../scopes"
_INDUCTOR = "torch._inductor.config"
_SETTINGS = _BEFORE_AUTOGRAD, _BEHIND_AUTOGRAD, _LAST = (
    "pre_grad_custom_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)
_installed: dict[str, _Pass] = {}
_names: list[str] = []


@functools.cache
def _passes() -> dict[str, Callable[[Graph, str], Any]]:
    """What our passes do to a graph for the framework of a name, by setting of Inductor.

    They are imported when a program is compiled, with what they need of Dynamo and with the operators they put there.
    """
    from .products import add_in_place
    from .slow_code import keep_row_sums, store_masks_as_numbers
    from .walk import put_operators

    return {
        _BEFORE_AUTOGRAD: put_operators,
        _BEHIND_AUTOGRAD: lambda graph, name: keep_row_sums(graph),
        _LAST: lambda graph, name: (add_in_place(graph), store_masks_as_numbers(graph)),
    }


class _Pass:
    """Ours for a setting of Inductor, behind the pass that was there before, as Inductor calls passes and keys its
    caches by them.
    """

    def __init__(self, setting: str, name: str, before: Callable[[Graph], None] | None):
        self.setting, self.name, self.before = setting, name, before

    def __call__(self, graph: Graph) -> None:
        if self.before is not None:
            self.before(graph)
        from torch._inductor.virtualized import V

        if V.aot_compilation is not True:  # a package of AOTInductor is loaded where nobody knows our operators
            _passes()[self.setting](graph, self.name)

    def uuid(self) -> Any | None:
        """The content of what decides about the graph; None, so that nothing is kept, where the other pass has none."""
        _passes()  # a program that Inductor has kept calls their operators
        if self.before is not None and getattr(self.before, "uuid", None) is None:
            return None
        others = () if self.before is None else (self.before.uuid(),)
        return (
            self.setting,
            self.name,
            hashlib.sha256(b"".join(path.read_bytes() for path in _sources())).hexdigest(),
            *others,
        )


def _sources() -> list[Path]:
    return sorted(path for room in _ROOMS for path in (Path(__file__).parent / room).glob("*.py"))


def install(name: str = NAME) -> None:
    """Have Inductor's programs call our operators, which are counted for the framework ``name``; where several ask, for
    the last one that is a framework.
    """
    _names.append(name)
    _put()
    _forget_programs()


def uninstall(name: str = NAME) -> None:
    """Take back what ``install`` did for this name, and have all programs compiled again. Nothing if it did nothing."""
    if name not in _names:
        return
    _names.remove(name)
    if _names:
        _put()
    else:
        for setting, ours in _installed.items():
            if getattr(inductor := imported(_INDUCTOR), setting) is ours:
                setattr(inductor, setting, ours.before)
        _installed.clear()
    _forget_programs()


def _put() -> None:
    """Set Inductor's passes, if there is an Inductor."""
    if not _names or (inductor := imported(_INDUCTOR)) is None:
        return
    name = next((each for each in reversed(_names) if each != NAME), NAME)
    for setting in _SETTINGS:
        present, ours = getattr(inductor, setting), _installed.get(setting)
        if ours is None or present is ours:  # a pass that was put there since stays
            _installed[setting] = _Pass(setting, name, present if ours is None else ours.before)
            setattr(inductor, setting, _installed[setting])


def _forget_programs() -> None:
    """Compiled programs know nothing of passes: those that are there would stay as they are."""
    if (dynamo := imported(DYNAMO)) is not None:
        dynamo.reset()


def compile(model: Callable | None = None, *, backend: str | Callable = "inductor", **kwargs: Any) -> Any:
    """``torch.compile`` with our operators in the place of gathers, messages and reductions over edges.

    For code that belongs to no framework, and for any backend. What is written with ``x[index]``, ``index_select``,
    arithmetic, ``scatter_add``, ``scatter_reduce`` or ``index_add`` becomes the operators that layers of an enabled
    framework become; the graph of an index is found at run time, by the tensor or its content, and kept.

    Args:
        model: a module or function; without one, a decorator is returned.
        backend: name or function, as ``torch.compile`` takes it: what compiles the rest.
        kwargs: ``fullgraph``, ``dynamic``, ``mode``, ``options``, as ``torch.compile`` takes them.
    """

    def compiler(program: GraphModule, inputs, **given):
        from .walk import put_operators

        for each in program.modules():
            if isinstance(each, GraphModule) and put_operators(each.graph, NAME):
                each.graph.lint()
                each.recompile()
        return _compiler_of(backend)(program, inputs, **given)

    return torch.compile(model, backend=compiler, **kwargs)


def _compiler_of(backend: str | Callable) -> Callable:
    if backend == "inductor":
        return _by_inductor
    from torch._dynamo.backends.registry import lookup_backend

    return lookup_backend(backend) if isinstance(backend, str) else backend


def _by_inductor(program: GraphModule, inputs, mode: str | None = None, options: dict | None = None, **given):
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    patches = {**(list_mode_options(mode) if mode else {}), **(options or {})}
    return compile_fx(program, inputs, config_patches=patches, **given)


def _register_pass() -> None:
    """Have Inductor take ours for passes, which are of a class of its own since PyTorch 2.6."""
    imported(_PASS).CustomGraphPass.register(_Pass)


_PASS = "torch._inductor.custom_graph_pass"
when_imported(_PASS, _register_pass)
when_imported(_INDUCTOR, _put)
