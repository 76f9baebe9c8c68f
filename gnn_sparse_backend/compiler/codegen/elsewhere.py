"""Builds in other processes, so that this one goes on meanwhile: neither its interpreter nor its memory is needed.

A process that is asked imports TVM, and does one build after the other until nobody has asked for `IDLE` seconds. It is
sent what builds as a pickled value, and sends back the files. It is no copy of this process, as those of
``multiprocessing`` are: one that is spawned would run the user's program again, one that is forked lacks its threads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

from ...system import after_fork
from .errors import BuildError

Build: TypeAlias = Callable[[Path], "str | os.PathLike[str]"]
IDLE = 60.0
"""Seconds after which a process that nobody asks ends."""
_BUILT, _FAILED, _UNKNOWN = "built", "failed", "unknown"


class Stopped(Exception):
    """The process was ended by `Workers.stop`."""


class Worker:
    """A process that builds."""

    def __init__(self) -> None:
        # PyTorch, which builds need nothing of, would be imported by tvm_ffi
        program = f"""
import sys
sys.path[:] = {sys.path!r}
sys.modules["torch"] = None
from {__name__} import serve
serve()
"""
        # a session of its own: Ctrl-C in a terminal is for the program
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def ask(self, request: bytes) -> tuple[str, Any] | None:
        """The answer; None where the process has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            _write(self.process.stdin, request)
            answer = _read(self.process.stdout)
        except OSError:
            answer = None
        return None if answer is None else pickle.loads(answer)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Workers:
    """The processes of this one, each of which does one build at a time: as many as there are builds at once."""

    def __init__(self) -> None:
        self.make_lock()

    def make_lock(self) -> None:
        """Know of no process: those of a parent are its own."""
        self._guard = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._stopped = False

    def build(self, build: Build, folder: Path) -> str | os.PathLike[str]:
        """What ``build(folder)`` returns and leaves there, done by another process; by this one where that cannot be
        sent what builds, as a function of a user's script, or cannot be started.

        Raises what the build raises, BuildError where the process dies, Stopped.
        """
        try:
            request = pickle.dumps(build)
        except (pickle.PicklingError, AttributeError, TypeError):
            return build(folder)
        try:
            kind, answer = self._answer(request)
        except OSError:
            kind = _UNKNOWN
        if kind == _UNKNOWN:
            return build(folder)
        if kind == _FAILED:
            raise answer
        library, files = answer
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return str(library)

    def stop(self) -> None:
        """End all processes, whatever they do."""
        with self._guard:
            self._stopped = True
            for worker in self._all:
                worker.process.kill()

    def _answer(self, request: bytes) -> tuple[str, Any]:
        while True:
            with self._taken() as (worker, idle):
                answer = worker.ask(request)
                if answer is not None:
                    return answer
                code = worker.process.wait()
            if self._stopped:
                raise Stopped
            if not idle or code:  # else it was just about to end
                raise BuildError("of another process", f"the process that compiled it ended with exit status {code}")

    @contextlib.contextmanager
    def _taken(self) -> Iterator[tuple[Worker, bool]]:
        """A process for this thread alone, and whether it has been idle."""
        with self._guard:
            if self._stopped:
                raise Stopped
            worker = self._idle.pop() if self._idle else None
            idle = worker is not None
            if worker is None:
                worker = Worker()
                self._all.add(worker)
        try:
            yield worker, idle
        finally:
            with self._guard:
                if worker.process.poll() is None:
                    self._idle.append(worker)
                else:
                    worker.close()
                    self._all.discard(worker)


WORKERS = Workers()
after_fork(WORKERS.make_lock)


def serve() -> None:
    """Do what is asked on the standard input, until it is closed or nobody asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    came: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(os.fdopen(os.dup(0), "rb", buffering=0), came), daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while (request := came.get(timeout=IDLE)) is not None:
            _write(answers, _done(request))


def _listen(pipe: IO[bytes], came: queue.SimpleQueue[bytes | None]) -> None:
    """Hand on what comes through a pipe: not every system lets a program wait for one with a limit."""
    request: bytes | None = b""
    while request is not None:
        request = _read(pipe)
        came.put(request)


def _done(request: bytes) -> bytes:
    try:
        build = pickle.loads(request)
    except Exception:  # of a module that only the other process has
        return pickle.dumps((_UNKNOWN, None))
    with tempfile.TemporaryDirectory(prefix="gsb-") as scratch:
        folder = Path(scratch)
        try:
            library = Path(build(folder)).name
            found = _BUILT, (library, {path.name: path.read_bytes() for path in folder.iterdir()})
        except Exception as error:
            return _pickled_error(error)
        return pickle.dumps(found)


def _pickled_error(error: Exception) -> bytes:
    try:
        answer = pickle.dumps((_FAILED, error))
        pickle.loads(answer)
        return answer
    except Exception:  # one that takes other arguments than it keeps, or holds what cannot be sent
        return pickle.dumps((_FAILED, BuildError("of another process", f"{type(error).__name__}: {error}")))


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """What `_write` has written; None where nothing more comes."""
    header = _exactly(pipe, 8)
    return None if header is None else _exactly(pipe, int.from_bytes(header, "little"))


def _exactly(pipe: IO[bytes], count: int) -> bytes | None:
    parts, left = [], count
    while left:
        part = pipe.read(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
