"""``python -m tests.faults [NAME ...]``: plant each fault in a copy of the tree, and see which of the short tests of
its area finds it. The exit status is 1 if one is not found.

Results are kept in out/faults.json as they come, and shown as a table of Markdown. ``--docs`` writes those of all
faults to docs/testing.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict

from . import pages
from .fault import ROOT, Fault, all_faults
from .plant import Outcome, run

RESULTS = ROOT / "out" / "faults.json"


def main() -> int:
    options = _options()
    faults = [fault for fault in all_faults() if not options.names or fault.name in options.names]
    unknown = set(options.names) - {fault.name for fault in faults}
    if unknown:
        raise SystemExit(f"tests.faults: there is no fault {', '.join(sorted(unknown))}; see --list")
    if options.list:
        print("\n".join(f"{fault.group}/{fault.name}: {fault.subject}" for fault in faults))
        return 0
    known = _read()
    wanted = [f for f in faults if not (options.only_missing and known.get(f.name, {}).get("found_by"))]
    outcomes = _run(wanted, options, known)
    if options.control:
        failed = [f"{name}: {outcome.found_by}" for name, outcome in outcomes.items() if outcome.found_by]
        print("\n".join(["fails without the fault:", *failed]) if failed else "all pass without the faults")
        return int(bool(failed))
    found_by = {name: outcome["found_by"] for name, outcome in known.items()}
    missing = sum(not found_by[fault.name] for fault in faults)
    print("\n".join([pages.table(faults, found_by), "", f"{len(faults) - missing} of {len(faults)} found"]))
    if options.docs:
        if unknown := {fault.name for fault in all_faults()} - set(found_by):
            raise SystemExit(f"tests.faults: not planted yet: {', '.join(sorted(unknown))}")
        pages.write(found_by)
    return int(missing > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to plant (default: all)")
    parser.add_argument("--list", action="store_true", help="list the faults and plant none")
    parser.add_argument("--only-missing", action="store_true", help="leave out what was found before")
    parser.add_argument("--control", action="store_true", help="run the same tests without the faults: all must pass")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/testing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="seconds of a run (default: 900)")
    return parser.parse_args()


def _run(faults: list[Fault], options: argparse.Namespace, known: dict[str, dict]) -> dict[str, Outcome]:
    """Outcomes by name, which are also added to ``known`` and kept, unless they are those of a control."""
    found: dict[str, Outcome] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run, fault, not options.control, options.timeout): fault for fault in faults}
        for done in as_completed(runs):
            fault, outcome = runs[done], done.result()
            found[fault.name] = outcome
            said = outcome.found_by or ("passes" if options.control else pages.NOT_FOUND)
            print(f"[{len(found)}/{len(faults)}] {fault.name}: {said} ({outcome.seconds:.0f} s)", flush=True)
            if not options.control:
                known[fault.name] = asdict(outcome)
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
    return found


def _read() -> dict[str, dict]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


if __name__ == "__main__":
    raise SystemExit(main())
