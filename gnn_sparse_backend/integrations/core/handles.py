"""What we derived from an object of a framework, found again when the same object comes back.

A framework hands over the same graph object at every layer and every epoch; building CSR from it costs
milliseconds, so the result is kept for as long as that object lives. An entry belongs to an object, never to an
address: it holds a weak reference, which is compared with the object at each look-up, so an object that was freed and
whose `id` or memory now belongs to another cannot be mistaken for it.

A tensor can change under the same identity, so its version counter, storage, offset, shape and strides are compared
too. Writes that bypass PyTorch's version counter (through `tensor.data`, or NumPy memory shared with the tensor) do
not show there; PyTorch's own autograd has the same blind spot. Whoever can tell from a kept value what the tensor held
looks at its content (`once`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch


class Handles:
    """A weak map (object, key) -> value.

    Objects must be weakly referenceable; they are compared by identity and are not kept alive. A value must not hold
    a strong reference to its object, or neither is ever freed. Reads take no lock; two threads that miss together
    both build, and the later `put` stays.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: Any, key: Hashable = None) -> Any | None:
        """The value put for `owner` and `key`, or None if there is none or `owner` has changed since."""
        entry = self._entries.get(id(owner))
        if entry is None or entry.reference() is not owner:
            return None
        if entry.state is not None and entry.state != _tensor_state(owner):
            return None
        return entry.values.get(key)

    def put(self, owner: Any, value: Any, key: Hashable = None) -> None:
        """Keep `value` for `owner` (in its present state) and `key` until `owner` is freed or changes."""
        state = _tensor_state(owner) if isinstance(owner, torch.Tensor) else None
        entry = self._entries.get(id(owner))
        if entry is None or entry.reference() is not owner or entry.state != state:
            entry = _Entry(self._entries, owner, state)
            self._entries[id(owner)] = entry
        entry.values[key] = value

    def once(
        self, owner: Any, key: Hashable, make: Callable[[], Any], still: Callable[[Any], bool] = lambda found: True
    ) -> Any:
        """The value for `owner` and `key`, made at first; each time for an inference tensor, which has no versions.

        still: whether a value that was kept is that of the content of `owner` now.
        """
        lasting = not (isinstance(owner, torch.Tensor) and owner.is_inference())
        found = self.get(owner, key) if lasting else None
        if found is None or not still(found):
            found = make()
            if lasting:
                self.put(owner, found, key)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


class _Entry:
    __slots__ = ("__weakref__", "reference", "state", "values")

    def __init__(self, entries: dict[int, _Entry], owner: Any, state: tuple | None) -> None:
        self.state = state
        self.values: dict[Hashable, Any] = {}
        identity = id(owner)

        def forget(reference: weakref.ref) -> None:
            # The id may belong to another object's entry by now: only ours may go.
            entry = entries.get(identity)
            if entry is not None and entry.reference is reference:
                del entries[identity]

        self.reference = weakref.ref(owner, forget)


def _tensor_state(tensor: torch.Tensor) -> tuple:
    return (tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
