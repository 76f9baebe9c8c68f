"""Runs parts one after the other, each as a process with a limit, and goes on whatever becomes of one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.part import LOST
from benchmarks.gpu.registry import Part
from benchmarks.gpu.reports import Reports
from benchmarks.gpu.told import GPU

LINES, LOG = "results.jsonl", "log.txt"
ENVIRONMENT = "environment.json"
"""Written by a part into its folder: variables that all later parts get."""
LEAST = 5.0
"""Seconds without which a part is not begun."""
MOST_LOST = 5
"""How many times a part goes on that has lost the GPU."""
NOT_BEGUN = "not begun: no time left"


@dataclass
class Run:
    """A run into a folder.

    out: what comes back: the lines of results, the log, the files that parts keep. scratch: the other files. end: of
    the monotonic clock. share: times each part's limit is what it gets. mode: as of ``told.MODES``. arch: of what
    stands in for a GPU. small: prepare what a rehearsal launches.
    """

    out: Path
    scratch: Path
    end: float
    share: float = 1.0
    mode: str = GPU
    arch: str = "sm_90"
    small: bool = False
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    ended: dict[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> Path:
        return self.out / LINES

    def all(self, parts: Sequence[Part], say: Callable[[str], None] = print) -> dict[str, str]:
        """What became of each part, in words, by name; ``say`` is told as soon as it is known."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.lines.unlink(missing_ok=True)
        if threading.current_thread() is threading.main_thread():
            # who stops the run stops the part that is running, too
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        for part in parts:
            begin = time.monotonic()
            left = self.end - begin
            self.ended[part.name] = self.one(part, min(part.seconds * self.share, left)) if left > LEAST else NOT_BEGUN
            say(f"{part.name}: {self.ended[part.name]} ({time.monotonic() - begin:.0f} s)")
        return self.ended

    def one(self, part: Part, seconds: float) -> str:
        """Run one part for at most ``seconds``; return what became of it, in words."""
        work = self.scratch / part.name
        work.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-u", "-m", "benchmarks.gpu.part", part.path, "--name", part.name]
        command += ["--mode", self.mode, "--arch", self.arch, "--seconds", f"{seconds:.1f}"]
        command += ["--lines", str(self.lines), "--work", str(work), "--kept", str(self.out)]
        command += ["--small"] if self.small else []
        reports = Reports(part.name, work, self.lines)
        with (self.out / LOG).open("a") as log:
            log.write(f"\n===== {part.name}\n")
            log.flush()
            end, lost = time.monotonic() + seconds, 0
            status = watched(command, seconds, log, self.environment, reports.collect)
            # what is left is asked in a process that has the GPU anew
            while status == LOST and lost < MOST_LOST and end - time.monotonic() > LEAST:
                lost += 1
                status = watched(command, end - time.monotonic(), log, self.environment, reports.collect)
        reports.collect()
        self._take_environment(work / ENVIRONMENT)
        if status is None:
            return f"stopped: its {seconds:.0f} s were over"
        if status == LOST:
            return "ended: it lost the GPU"
        if status < 0:
            return f"ended by signal {signal.Signals(-status).name}"
        if status == 0 and lost:
            return f"done, and lost the GPU {lost} times on its way"
        return "done" if status == 0 else f"failed with exit status {status}"

    def _take_environment(self, path: Path) -> None:
        if path.exists():
            self.environment |= json.loads(path.read_text())


def watched(
    command: Sequence[str],
    seconds: float,
    log,
    environment: Mapping[str, str],
    meanwhile: Callable[[], None] = lambda: None,
) -> int | None:
    """The exit status of a command; None where it was ended, with all that it had started, for its time was over."""
    end = time.monotonic() + seconds
    # a group of its own: what it has started is to end with it
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        while process.poll() is None and time.monotonic() < end:
            meanwhile()
            time.sleep(0.1)
        return process.poll()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
