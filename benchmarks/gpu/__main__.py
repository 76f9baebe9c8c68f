"""Every open question about a GPU in some minutes: ``python -m benchmarks.gpu --minutes 8 --out DIR``.

Parts in the order of what their answers are worth (``registry``), each a process with a limit. Each result is a line of
DIR/results.jsonl as soon as it is known; at the end come tables, and what failed, hung, or was not begun, in
DIR/summary.txt.

    python -m benchmarks.gpu --prepare kit            here: kernels for sm_90 and sm_80 and real graphs, at most 20 MiB
    python -m benchmarks.gpu --minutes 8 --cache kit --out out      there
    python -m benchmarks.gpu --only answers spmm --out out          some parts alone
    python -m benchmarks.gpu --rehearse --out out                   all parts without a GPU, in small sizes
    python -m benchmarks.gpu --tables out                           the tables of an earlier run, once more
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.gpu import kit, tables
from benchmarks.gpu.registry import FULL_MINUTES, PARTS, chosen
from benchmarks.gpu.runner import LINES, Run
from benchmarks.gpu.told import GPU, REHEARSE, read_lines

ARCHITECTURES = ("sm_90", "sm_80")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="for all parts together")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder of results, tables and log: 5 files at most"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="what --prepare made")
    parser.add_argument(
        "--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART", help="of %(choices)s"
    )
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="compile what a run launches, without a GPU")
    parser.add_argument("--arch", nargs="+", default=list(ARCHITECTURES), help="to prepare for")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU: serial kernels, small sizes")
    parser.add_argument("--tables", type=Path, metavar="DIR", help="print the tables of an earlier run")
    options = parser.parse_args(argv)
    if options.minutes <= 0:
        parser.error(f"--minutes must be positive, got {options.minutes:g}")
    return options


def main(argv: Sequence[str] | None = None, parts: Sequence = ()) -> int:
    """Run; 0 if all parts came to their ends and all results were right, else 1. parts: in the place of the
    registry's.
    """
    options = arguments(argv)
    console = Console()
    parts = list(parts) or chosen(options.only)
    if options.tables:
        tables.show(read_lines(options.tables / LINES), {}, console)
        return 0
    if options.prepare:
        return kit.prepare(options.prepare, options.arch, parts, console, small=options.rehearse)
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="gsb-gpu-") as scratch:
        mode = REHEARSE if options.rehearse else GPU
        share = options.minutes / FULL_MINUTES  # serial kernels may take all the time that there is
        run = Run(options.out, Path(scratch), end, share if options.rehearse else min(1.0, share), mode)
        if options.cache:
            run.environment |= kit.unpack(options.cache, Path(scratch), console)
        run.all(parts, lambda words: console.print(words, markup=False))
        lines = read_lines(run.lines)
        path = tables.write(lines, run.ended, options.out, console)
    console.print(f"written: {run.lines}, {path}")
    return int(tables.failed(lines, run.ended))


if __name__ == "__main__":
    raise SystemExit(main())
