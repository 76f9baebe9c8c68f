"""Kernels that are compiled in the background (``GSB_COMPILE=background``), while a framework computes what they would.

A thread that asks on behalf of a framework (`for_framework`) and wants a kernel that has to be compiled gets
`PendingKernel` raised. Who catches it starts what makes the kernel, and lets the framework compute. Whoever else wants
it, a backward pass say, waits as ever.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

from ... import system
from ...config import COMPILE
from ..codegen.elsewhere import WORKERS, Build, Stopped
from .bounded import shared
from .fork import own_locks

Make = Callable[[], object]


class PendingKernel(Exception):
    """A kernel is not there yet.

    key, make: for `Background.start`; None where somebody makes it already, or has tried to. error: what came of that.
    """

    def __init__(self, key: Hashable = None, make: Make | None = None, error: BaseException | None = None) -> None:
        super().__init__("a kernel that a framework's call wants is not compiled")
        self.key, self.make, self.error = key, make, error


@functools.cache
def in_background() -> bool:
    """Whether calls of frameworks wait for no kernel that has to be compiled."""
    return COMPILE.get() == "background"


class _OfThread(threading.local):
    """asking: whether a framework would compute what is asked for. working: whether this thread is of `Background`."""

    asking = False
    working = False


_now = _OfThread()


@contextlib.contextmanager
def for_framework(asking: bool = True) -> Iterator[None]:
    """Inside the block a framework would compute what kernels are asked for; or, ``asking`` False, nobody would."""
    before, _now.asking = _now.asking, asking and in_background() and not BACKGROUND.forked
    try:
        yield
    finally:
        _now.asking = before


def waits() -> bool:
    """Whether who asks in this thread waits for a kernel that has to be compiled."""
    return not _now.asking


def built(build: Build, folder: Path) -> str | os.PathLike[str]:
    """What a build returns, done by another process where this thread is of `Background`."""
    return WORKERS.build(build, folder) if _now.working else build(folder)


class Background:
    """What is made in threads of their own, each once, as many at a time as `_at_once` says.

    busy: whether anything is being made, or could not be. forked: whether this process was forked, from when on
    everybody waits: its parent compiles already.
    """

    forked = False

    def __init__(self) -> None:
        self._failed = shared("kernels that could not be compiled in the background", 1024)
        own_locks(self)

    def make_locks(self) -> None:
        """Know of nothing that is being made: threads of a parent do not come along."""
        self._changed = threading.Condition()
        self._turns = threading.Semaphore(_at_once())
        self._running: dict[Hashable, threading.Thread] = {}
        self._errors: list[BaseException] = []
        self._stopped = False
        self.busy = bool(self._failed)

    def start(self, key: Hashable, make: Make) -> None:
        """Call ``make()`` in a thread, unless that is being done, or has failed."""
        with self._changed:
            if self._stopped or key in self._running or key in self._failed:
                return
            if not self._running:
                atexit.unregister(self.stop)
                atexit.register(self.stop)  # again, so that it comes before what others have registered since
            thread = threading.Thread(target=self._make, args=(key, make), name="gsb-background", daemon=True)
            self._running[key], self.busy = thread, True
        thread.start()

    def check(self, key: Hashable) -> None:
        """Raise PendingKernel where what has this key is being made, or could not be."""
        if key in self._running:
            raise PendingKernel
        if key in self._failed:
            raise PendingKernel(error=self._failed[key])

    def wait(self, timeout: float | None = None) -> None:
        """`wait_for_kernels`."""
        with self._changed:
            done = self._changed.wait_for(lambda: not self._running, timeout)
            if self._errors:
                raise self._errors.pop(0)
            if not done:
                raise TimeoutError(f"{len(self._running)} calls wait for kernels after {timeout} s")

    def stop(self) -> None:
        """Let go of everything: the process ends."""
        with self._changed:
            self._stopped, threads = True, list(self._running.values())
        WORKERS.stop()
        for thread in threads:
            thread.join()

    def _make(self, key: Hashable, make: Make) -> None:
        _now.working = True
        error: BaseException | None = None
        try:
            with self._turns:
                if not self._stopped:
                    make()
        except Stopped:
            pass
        except BaseException as found:
            error = found.with_traceback(None)  # which would hold tensors
        with self._changed:
            if error is not None and not self._stopped:
                self._failed.keep(key, error)
                self._errors = [*self._errors[-63:], error]
            del self._running[key]
            self.busy = bool(self._running or self._failed)
            self._changed.notify_all()


def _at_once() -> int:
    """Half of the cores: the other half is the program's."""
    return max(1, min(4, system.cores() // 2))


BACKGROUND = Background()


def _after_fork_in_child() -> None:
    BACKGROUND.forked = True


system.after_fork(_after_fork_in_child)


def wait_for_kernels(timeout: float | None = None) -> None:
    """Wait until no kernel is being compiled in the background (``GSB_COMPILE=background``).

    Calls like those that were left to a framework meanwhile run on the kernels from then on, their backward passes too.

    Args:
        timeout: seconds to wait at most; None for as long as it takes.

    Raises:
        TimeoutError: kernels are still being compiled after that time.
        compiler.BuildError: or whatever else kept a kernel from being made; each failure is raised once, by the first
            call that finds it.
    """
    BACKGROUND.wait(timeout)
