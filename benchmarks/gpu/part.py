"""One part of the run in a process of its own: ``python -m benchmarks.gpu.part``, started by the run.

A part is a module with ``run(told)``. What it raises is recorded, and ends it alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.told import FAILED, GPU, MODES, PREPARE, REHEARSE, GpuLost, Told, first_line, read_lines

LOST = 3
"""The exit status of a part that has lost the GPU."""


@contextlib.contextmanager
def stand_in(told: Told, arch: str) -> Iterator[None]:
    """Nothing on a GPU; else what stands in for one. A rehearsal records how many kernels the cache has for a GPU."""
    if told.on_gpu:
        yield
        return
    from benchmarks.support.gpu import stand_ins

    if told.mode == PREPARE:
        from benchmarks.gpu.compiling import ours_alone

        with stand_ins.a_gpu(arch, stand_ins.compiled, told.small), ours_alone():
            yield
        return
    kernels = stand_ins.Kernels()
    try:
        with stand_ins.a_gpu(arch, stand_ins.serial(kernels), small=True):
            yield
    finally:
        told.record("kernels in the cache", asked=kernels.asked, missing=sorted(set(kernels.missing)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module")
    parser.add_argument("--name", required=True)
    parser.add_argument("--mode", choices=MODES, default=GPU)
    parser.add_argument("--arch", default="sm_90", help="of what stands in for a GPU")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--small", action="store_true", help="prepare what a rehearsal launches")
    for folder in ("--lines", "--work", "--kept"):
        parser.add_argument(folder, type=Path, required=True)
    options = parser.parse_args(argv)
    # by a process of this part that has lost the GPU
    done = frozenset(line["where"] for line in read_lines(options.lines) if line["part"] == options.name)
    small = options.small or options.mode == REHEARSE
    told = Told(options.name, options.lines, options.work, options.kept, options.mode, options.seconds, small, done)
    try:
        with stand_in(told, options.arch):
            importlib.import_module(options.module).run(told)
    except GpuLost as error:
        told.record("the GPU", FAILED, why=f"lost {error}")
        return LOST
    except Exception as error:
        traceback.print_exc()
        told.record("the part itself", FAILED, why=first_line(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
