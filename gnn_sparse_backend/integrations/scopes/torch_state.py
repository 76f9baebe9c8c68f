"""What PyTorch knows of the thread that asks, for versions that tell it and for those that do not."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torch._C import _autograd
from torch._C._dynamo import eval_frame
from torch.autograd.graph import saved_tensors_hooks


class _Entered(threading.local):
    """pairs: (pack, unpack) of the contexts that this thread is in, the inner one last."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Callable, Callable]] = []


def _watched() -> Callable[[], tuple[Callable, Callable] | None]:
    """``saving_hooks`` of PyTorch 2.4: contexts are noted as they are entered, from now on."""
    entered = _Entered()
    enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

    def noted(context):
        result = enter(context)
        entered.pairs.append((context.pack_hook, context.unpack_hook))
        return result

    def forgotten(context, *args):
        if entered.pairs:  # none for a context that was entered before this was here
            entered.pairs.pop()
        return leave(context, *args)

    saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__ = noted, forgotten  # type: ignore[method-assign]
    return lambda: entered.pairs[-1] if entered.pairs else None


def _told() -> tuple[Callable, Callable] | None:
    return _autograd._top_saved_tensors_default_hooks(True)


def _taken_and_put_back() -> Callable | bool | None:
    """``frame_callback`` of PyTorch 2.4, which tells what was there to whoever sets another."""
    callback = eval_frame.set_eval_frame(None)
    eval_frame.set_eval_frame(callback)
    return callback


saving_hooks = _told if hasattr(_autograd, "_top_saved_tensors_default_hooks") else _watched()
"""() -> (pack, unpack) of tensors that a backward pass keeps (of a checkpoint, of an offload), or None."""
frame_callback = getattr(eval_frame, "get_eval_frame_callback", _taken_and_put_back)
"""() -> what compiles the functions that are called, or None where they run as they are."""
