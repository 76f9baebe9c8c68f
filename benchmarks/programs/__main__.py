"""Example programs of a framework, unchanged, with and without the backend in turns.

    git clone --depth 1 https://github.com/pyg-team/pytorch_geometric
    python -m benchmarks.programs pytorch_geometric/examples --framework pyg

Each run is a process of its own, on generated data of the sizes that the program asks for. A program that does not run
without the backend, for what it needs or downloads, is named and left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.support import cli, machine, report

ROOT = Path(__file__).resolve().parents[2]


def once(framework: str, script: Path, ours: bool, options) -> dict | str:
    """A run, or the last line of its error."""
    asked = [framework, str(script.resolve()), "ours" if ours else "alone", str(options.warm), str(options.steps)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"), str(options.threads))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.programs.run", *asked],
            capture_output=True,
            text=True,
            timeout=options.timeout,
            cwd=ROOT,
            env={**os.environ, **threads, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        )
    except subprocess.TimeoutExpired:
        return f"over {options.timeout:.0f} s"
    lines = (done.stdout if not done.returncode else done.stderr).strip().splitlines()
    return json.loads(lines[-1]) if not done.returncode else (lines[-1] if lines else f"exit {done.returncode}")


def measure(framework: str, script: Path, options) -> dict:
    """One program, as plain values."""
    times: dict[bool, list[float]] = {False: [], True: []}
    losses = {}
    for turn in range(options.runs):
        for ours in (False, True) if turn % 2 == 0 else (True, False):
            found = once(framework, script, ours, options)
            if isinstance(found, str):
                return {"script": script.stem, "failed": found, "ours": ours}
            times[ours].append(found["seconds"])
            losses[ours] = found["loss"]
    alone, ours = (statistics.median(times[which]) for which in (False, True))
    return {
        "script": script.stem,
        "alone": alone,
        "ours": ours,
        "speedup": alone / ours,
        "losses": list(losses.values()),
    }


def show(framework: str, measured: list[dict], console) -> None:
    """A row for each program; then those that did not run."""
    table = report.table(f"{framework}: a step of unchanged programs, milliseconds", ("program",), _HEADINGS)
    good = [each for each in measured if "failed" not in each]
    for each in sorted(good, key=lambda each: each["speedup"]):
        losses = " / ".join("–" if loss is None else f"{loss:.4g}" for loss in each["losses"])
        mark = "[red]" if each["speedup"] < 0.97 else ""
        times = (f"{each[name] * 1e3:.2f}" for name in ("alone", "ours"))
        table.add_row(each["script"], *times, f"{mark}{each['speedup']:.2f}", losses)
    console.print(table)
    if good:
        ratios = [each["speedup"] for each in good]
        console.print(
            f"{len(good)} programs: median {statistics.median(ratios):.2f}, "
            f"geometric mean {statistics.geometric_mean(ratios):.2f}, {sum(r < 0.97 for r in ratios)} under 0.97"
        )
    for each in measured:
        if "failed" in each:
            who = "[red]with the backend[/] " if each["ours"] else ""
            console.print(f"  left out: {each['script']}: {who}{each['failed'][:110]}", highlight=False)


_HEADINGS = ("alone", "with the backend", "ratio", "last losses")


def main() -> None:
    parser = cli.parser(__doc__, budget=3600.0)
    parser.add_argument("folder", type=Path, help="a folder of programs, or one program")
    parser.add_argument("--framework", choices=tuple(cli.FRAMEWORKS), default="pyg")
    parser.add_argument("--only", nargs="+", help="names of programs")
    parser.add_argument("--runs", type=cli.positive_int, default=9)
    parser.add_argument("--warm", type=cli.positive_int, default=10, help="steps before the clock")
    parser.add_argument("--steps", type=cli.positive_int, default=50)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds of a run")
    options = parser.parse_args()
    console = cli.start(options)
    scripts = [options.folder] if options.folder.is_file() else sorted(options.folder.glob("*.py"))
    scripts = [script for script in scripts if options.only is None or script.stem in options.only]
    measured = []
    with report.progress(console, len(scripts)) as begin:
        for script in scripts:
            begin(script.stem)
            measured.append(measure(options.framework, script, options))
    show(options.framework, measured, console)
    found = {"machine": machine.describe(options.threads), "framework": options.framework, "programs": measured}
    console.print(f"written: {machine.write_json(options.out / f'programs-{options.framework}.json', found)}")


if __name__ == "__main__":
    main()
