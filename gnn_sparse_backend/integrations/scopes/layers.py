"""Layers of frameworks that are known to hand out nothing of what they have in between.

Most layers of PyG and DGL keep nothing of what they compute for every edge, so nobody can ask for its gradient, and
what autograd would have to know for that is left out. Whether a layer does is seen at its first call of a kind with
gradients, in which everything is recorded. A layer in which code of a user runs, or a hook, is recorded each time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from ...compiler.cache.bounded import shared
from .frames import has_hooks

_KNOWN = ("torch.", "torch_geometric.", "dgl.")
_hands_out = shared("layers that hand out messages", 4096)
_shares = shared("programs with shared sums", 4096)
_whole: WeakKeyDictionary = WeakKeyDictionary()
"""What a layer had when its modules were looked through, and whether all of them are known, without hooks."""


def kind_of(layer: Module, args: tuple, kwargs: dict[str, Any]) -> Hashable | None:
    """What tells the calls of a layer in which the same becomes of what is in between; None of one that may do anything
    at each call.
    """
    parts = layer._modules.values()
    found = _whole.get(layer)
    if found is None or found[0] != RemovableHandle.next_id or any(x is not y for x, y in zip(found[1], parts)):
        found = RemovableHandle.next_id, tuple(parts), all(map(_is_known, layer.modules()))
        _whole[layer] = found
    if not found[2]:
        return None
    given = *map(type, args), *kwargs, *map(type, kwargs.values())
    if bool in given:  # layers are asked for their attention weights by one
        return None
    return type(layer), layer.training, torch.is_autocast_enabled("cpu"), *given


def keeps_all(kind: Hashable | None, again: bool) -> bool:
    """Whether calls of this kind hand out nothing of what they have in between, as far as was seen. again: whether what
    runs may be computed again, when more was seen: what nobody has seen then counts as nothing.
    """
    return kind is not None and _hands_out.get(kind, not again) is False


def note(kind: Hashable, handed_out: bool) -> None:
    """A call of this kind has ended. handed_out: whether somebody holds what something else was made of."""
    if handed_out or kind not in _hands_out:
        _hands_out.keep(kind, handed_out)


def shares_sums(site: Hashable | None) -> bool:
    """Whether a program was seen to read a function of a sum in two messages at this place: computed once, it costs
    less than in each of two operators and their gradients.
    """
    return site is not None and site in _shares


def note_shared(site: Hashable | None) -> None:
    """A program has read a function of a sum in a second message."""
    if site is not None and site not in _shares:
        _shares.keep(site, True)


def _is_known(module: Module) -> bool:
    return type(module).__module__.startswith(_KNOWN) and not has_hooks(module)
