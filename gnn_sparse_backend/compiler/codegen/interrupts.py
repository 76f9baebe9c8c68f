"""Ctrl-C while a kernel is compiled.

Python runs the handler of a signal wherever the main thread is. Within TVM's passes that is below calls from C++, which
make an error of
their own of whatever is raised: a user who presses Ctrl-C would read that a kernel does not compile.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done, or has failed. Then its handler runs, which raises KeyboardInterrupt.

    Only the main thread is interrupted; in others, and where Ctrl-C is ignored or ends the process, nothing changes.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[-1])
