"""What a part of the run tells: a line of JSON for each result, written at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

OK, WRONG, FAILED, SKIPPED = "ok", "wrong", "failed", "skipped"
STATES = (OK, WRONG, FAILED, SKIPPED)
GPU, REHEARSE, PREPARE = "gpu", "rehearse", "prepare"
MODES = (GPU, REHEARSE, PREPARE)
"""On a GPU; on the CPU in small sizes, by serial kernels; compiling alone what a run launches."""


class GpuLost(Exception):
    """The GPU answers this process no more: an error of a kernel stays until the process ends."""


def write_line(path: Path, line: dict) -> None:
    """Add a line to a file that several processes may add to. NaN and infinities become None."""
    text = json.dumps(_plain(line), allow_nan=False) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, text.encode())  # in one piece
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[dict]:
    """All whole lines; one that was cut off is left out."""
    found = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error) or 'no words').splitlines()[0][:300]}"


@dataclass(frozen=True)
class Told:
    """A part's side of the run.

    part: its name. lines: the file of results. work: a folder for files of benchmarks and tools. kept: where files go
    that are to come back. mode: one of ``MODES``. seconds: for the part, from ``begin`` on.
    """

    part: str
    lines: Path
    work: Path
    kept: Path
    mode: str = GPU
    seconds: float = 60.0
    small: bool = False
    done: frozenset[str] = frozenset()
    begin: float = field(default_factory=time.monotonic)

    @property
    def on_gpu(self) -> bool:
        return self.mode == GPU

    @property
    def compiles(self) -> bool:
        """Whether kernels of a run on a GPU are wanted, also those that a rehearsal leaves out."""
        return self.mode == PREPARE and not self.small

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self.begin)

    def record(self, where: str, state: str = OK, **more: object) -> None:
        """Write a result. where: what it is of, in words. more: plain values."""
        write_line(self.lines, {"part": self.part, "where": where, "state": state, **more})

    def attempt(self, where: str, call: Callable[[], dict | None]) -> bool:
        """Record what a call gives, or how it fails; whether it was right. What was recorded before is not called
        again.

        Raises GpuLost where the GPU answers no more afterwards.
        """
        if where in self.done:
            return True
        begin = time.monotonic()
        try:
            found = dict(call() or {})
            self.wait()
        except Exception as error:  # one result's failure must not cost the others theirs
            self.record(where, FAILED, why=first_line(error), seconds=time.monotonic() - begin)
            self.check_gpu(where)
            return False
        state = str(found.pop("state", OK))
        self.record(where, state, **{"seconds": time.monotonic() - begin, **found})
        return state == OK

    def wait(self) -> None:
        """Until the GPU is through with all that was launched, which raises what went wrong there."""
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()

    def check_gpu(self, after: str) -> None:
        """Raise GpuLost unless the GPU still answers."""
        try:
            self.wait()
        except Exception as error:
            raise GpuLost(f"after {after}: {first_line(error)}") from error


def _plain(value):
    """The value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
