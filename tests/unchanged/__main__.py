"""What of the package differs from the record: ``python -m tests.unchanged``.

    python -m tests.unchanged                compare with tests/unchanged/recorded.json; exit 1 where something differs
    python -m tests.unchanged --record       write the record anew, which a change that is meant to change a kernel does
    python -m tests.unchanged kernels face   these parts alone

The parts, one module each:

    face      public names, signatures, the schemas of ``torch.ops.gsb``
    results   every operator of tests/ops, its first and second gradients, at the first and the ninth call, on one and
              on two threads, by the hash of their bits
    kernels   the stage III function, target and symbol of every kernel that these ask for, and of every default plan
              of a GPU
    reasons   what ``gsb.status()`` says after calls of layers that run here and that fall back

Bits and kernels depend on the CPU, so the record names it, and on another one they are not compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gnn_sparse_backend.planner import machine
from tests.unchanged import face, kernels, reasons, results

RECORD = Path(__file__).with_name("recorded.json")
OF_THE_CPU = "results", "kernels"


def found(parts: list[str]) -> dict[str, dict]:
    """What there is now, by part; plans are those of threads that spin while they wait."""
    machine.threads_sleep = lambda: False
    with kernels.collected() as programs:
        now = {
            part.__name__.rpartition(".")[2]: part.found() for part in (face, results, reasons) if _named(part, parts)
        }
        if "kernels" in parts:
            kernels.ask_for_default_plans()
            if "results" not in parts:
                results.found()
            now["kernels"] = dict(sorted(programs.items()))
    return now


def _named(part, parts: list[str]) -> bool:
    return part.__name__.rpartition(".")[2] in parts


def differences(before: dict, now: dict) -> list[str]:
    """A line for each entry that is missing, new, or not the same."""
    lines = []
    for key in sorted({*before, *now}):
        if key not in now:
            lines.append(f"- {key}: {before[key]}")
        elif key not in before:
            lines.append(f"+ {key}: {now[key]}")
        elif before[key] != now[key]:
            lines.append(f"  {key}: {before[key]} -> {now[key]}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unchanged", description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", choices=["face", "results", "kernels", "reasons", []], help="all by default"
    )
    parser.add_argument("--record", action="store_true", help="write the record anew")
    given = parser.parse_args()
    parts = given.parts or ["face", "results", "kernels", "reasons"]
    now = found(parts)
    if given.record:
        kept = json.loads(RECORD.read_text()) if RECORD.exists() and given.parts else {}
        RECORD.write_text(json.dumps({**kept, "cpu": kernels.cpu(), **now}, indent=0, sort_keys=True) + "\n")
        print(f"recorded {', '.join(f'{len(now[part])} of {part}' for part in parts)}")
        return 0
    recorded = json.loads(RECORD.read_text())
    failed = False
    for part in parts:
        if part in OF_THE_CPU and recorded["cpu"] != kernels.cpu():
            print(f"{part}: not compared, for they were recorded on {recorded['cpu']}, and this is {kernels.cpu()}")
            continue
        lines = differences(recorded[part], now[part])
        failed |= bool(lines)
        print(
            f"{part}: {len(lines)} of {len(recorded[part])} differ" if lines else f"{part}: {len(now[part])} the same"
        )
        print("\n".join(lines), end="\n" if lines else "")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
