"""compute-sanitizer over the default plans of all operators on a GPU: ``python -m tests.sanitizer``.

Runs the calls of ``tests/default_plans.py``, forward and backward: first without a tool, which compiles their kernels
and shows whether they run at all, then under memcheck (accesses out of bounds and misaligned) and racecheck (threads of
a block that race for shared memory). Ends with a line for each tool, and with 0 if both found nothing in all calls.

    python -m tests.sanitizer --minutes 9                   as far as that comes; it says where to go on
    python -m tests.sanitizer --tools racecheck --first 120
    python -m tests.sanitizer --only rgms bsr               calls whose names have one of these words
    python -m tests.sanitizer --list

Tensors have memory of their own under memcheck, without PyTorch's cache: in a block that is shared no access is out of
bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("memcheck", "racecheck")
FOUND = 86
# What a tool says at the end, and what we say of a call that ran.
SUMMARY = re.compile(r"SUMMARY: (\d+) (?:error|hazard)")
RAN = re.compile(r"^ran (\d+): ", re.MULTILINE)
FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/compute-sanitizer", "/usr/local/cuda/compute-sanitizer")


def sanitizer_path() -> str | None:
    """compute-sanitizer on the path, of CUDA_HOME, or where toolkits put it."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    for folder in (None, *([f"{home}/bin", f"{home}/compute-sanitizer"] if home else []), *FOLDERS):
        if found := shutil.which("compute-sanitizer", path=folder):
            return found
    return None


def options_of(sanitizer: str, tool: str) -> list[str]:
    """Of the tool, beside its name. PyTorch probes the driver with calls that fail: what fails on the device is asked
    for alone.
    """
    if tool != "memcheck":
        return []
    told = subprocess.run([sanitizer, "--help"], capture_output=True, text=True, check=False).stdout
    return [
        word
        for option, value in (("--report-api-errors", "no"), ("--padding", "256"))
        if option in told
        for word in (option, value)
    ]


def chosen(first: int, only: Sequence[str], share: Sequence[int] = (0, 1)) -> list[tuple[int, object]]:
    """(number, case) of the calls from ``first`` on whose names have one of the words. share: (k, n) for the k-th of
    each n of them.
    """
    from tests.default_plans import cases

    found = [
        (number, case)
        for number, case in enumerate(cases())
        if number >= first and (not only or any(word in case.name for word in only))
    ]
    return found[share[0] :: share[1]]


def run_calls(calls: Sequence[tuple[int, object]], device_name: str = "cuda") -> int:
    """Run the calls in this process, each with its number and name when it is through."""
    import torch

    device = torch.device(device_name)
    for number, case in calls:
        case(device)
        if device.type == "cuda":
            torch.cuda.synchronize()
        print(f"ran {number}: {case.name}", flush=True)
    print("all calls ran", flush=True)
    return 0


def watched(
    commands: Sequence[Sequence[str]], seconds: float, log: Path, environment: dict[str, str]
) -> list[tuple[int | None, str]]:
    """For each command, run side by side, its exit status, None where the time was over, and what it said; all of it is
    in ``log``.
    """
    parts = [log.with_suffix(f".{number}.part") for number in range(len(commands))]
    end = time.monotonic() + max(seconds, 1.0)
    processes = []
    for command, part in zip(commands, parts):
        with part.open("w") as out:
            # a group of its own: a tool leaves what it watches behind when it is killed
            processes.append(
                subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            )
    found: list[tuple[int | None, str]] = []
    for process, part in zip(processes, parts):
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(max(end - time.monotonic(), 0.1))
        if status is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found.append((status, part.read_text(errors="replace")))
        part.unlink()
    log.write_text("".join(said for _, said in found))
    return found


def verdict(status: int | None, said: str, tool: str) -> tuple[bool, str]:
    """Whether a run is clean, and in words what came of it."""
    ran = RAN.findall(said)
    numbers = [int(number) for number in SUMMARY.findall(said)]
    if (tool and any(numbers)) or status == FOUND:
        return False, f"found {sum(numbers)} problems: see the log"
    if status is None:
        return False, f"time over after {len(ran)} calls: " + (
            f"go on with --first {int(ran[-1]) + 1}" if ran else "give more --minutes"
        )
    if status != 0:
        return False, f"failed with exit status {status} after {len(ran)} calls: " + " | ".join(
            said.strip().splitlines()[-3:]
        )
    if "all calls ran" not in said:
        return False, "ended before all calls ran"
    if tool and not numbers:
        return False, "the tool gave no summary"
    return True, f"clean: {len(ran)} calls" if tool else f"{len(ran)} calls ran"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with the call of this number")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="calls whose names have one of these words"
    )
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="for all of it; the tools share what is left equally"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the logs")
    parser.add_argument("--list", action="store_true", help="print the calls and end")
    parser.add_argument(
        "--processes",
        type=int,
        default=max(1, min(8, (os.cpu_count() or 1) // 2)),
        help="that run the calls, and compile, side by side before the tools do",
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--share", nargs=2, type=int, default=(0, 1), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.list:
        for number, case in chosen(options.first, options.only):
            print(f"{number}: {case.name}")
        return 0
    if options.inside:
        return run_calls(
            chosen(options.first, options.only, options.share), os.environ.get("GSB_SANITIZED_DEVICE", "cuda")
        )
    if (missing := lacking()) is not None:
        print(f"not checked: {missing}")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    end, clean, sanitizer = time.monotonic() + 60 * options.minutes, True, sanitizer_path()
    inside = [sys.executable, "-u", "-m", "tests.sanitizer", "--inside", "--first", str(options.first)]
    inside += ["--only", *options.only] if options.only else []
    for place, tool in enumerate(("", *options.tools)):
        environment = dict(os.environ)
        if tool:
            commands = [
                [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *options_of(sanitizer, tool), *inside]
            ]
        else:
            commands = [[*inside, "--share", str(k), str(options.processes)] for k in range(options.processes)]
        if tool == "memcheck":
            environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        begin = time.monotonic()
        seconds = (end - begin) / (len(options.tools) - place + 1) if tool else end - begin
        log = options.out / f"sanitizer_{tool or 'none'}.log"
        found = [verdict(status, said, tool) for status, said in watched(commands, seconds, log, environment)]
        good = all(each for each, _ in found)
        words = dict.fromkeys(words for each, words in found if each is good)
        print(
            f"{tool or 'without a tool'}: {'; '.join(words)} ({time.monotonic() - begin:.0f} s, log: {log})", flush=True
        )
        clean &= good
        if not tool and not good:
            break  # what fails by itself only repeats itself under a tool
    return 0 if clean else 1


def lacking() -> str | None:
    """What there must be and is not, in words."""
    import torch

    if sanitizer_path() is None:
        return (
            "compute-sanitizer is not on the path, in CUDA_HOME or in /usr/local/cuda: it comes with the CUDA toolkit"
        )
    if os.environ.get("GSB_SANITIZED_DEVICE"):
        return None
    if not torch.cuda.is_available():
        return "no GPU at hand"
    from gnn_sparse_backend.compiler.codegen.cuda.runtime import missing_for_cuda

    return "; ".join(missing_for_cuda()) or None


if __name__ == "__main__":
    raise SystemExit(main())
