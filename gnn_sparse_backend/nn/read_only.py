"""A tensor that is made anew at each look, so that what somebody writes to it would be lost: writing is an error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_LOOKS = frozenset(("requires_grad_", "retain_grad"))
_HOLDERS = ("tensor", "input", "out")
_ARRAYS = (Tensor.numpy, Tensor.__array__)
_DATA = Tensor.data.__get__  # type: ignore[attr-defined]


class ReadOnly(Tensor):
    """Numbers to be read, with their gradient. What shares their memory is so too; what is computed is not.

    Writing raises RuntimeError that says ``how`` it is done instead.
    """

    how: str

    @classmethod
    def of(cls, x: Tensor, how: str) -> ReadOnly:
        """``x``, to be read. how: what to do instead of writing, in words."""
        made = x.as_subclass(cls)
        made.how = how
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        written = [x for x in (*args[:1], *(kwargs.get(each) for each in _HOLDERS)) if isinstance(x, ReadOnly)]
        if written and (_writes(name) or isinstance(kwargs.get("out"), ReadOnly)):
            raise RuntimeError(f"{name}: {written[0].how}")
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **kwargs)
        if written and func in _ARRAYS:
            found.flags.writeable = False
        elif written and isinstance(found, Tensor) and (func is _DATA or _share(found, written[0])):
            return cls.of(found, written[0].how)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(Tensor).__reduce_ex__(protocol)


def _writes(name: str) -> bool:
    if name.startswith("__"):
        return name in ("__setitem__", "__set__") or (name.startswith("__i") and name not in ("__invert__", "__int__"))
    return name.endswith("_") and name not in _LOOKS


def _share(one: Tensor, other: Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return bool(
            one.layout is torch.strided
            and one.numel()
            and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        )
