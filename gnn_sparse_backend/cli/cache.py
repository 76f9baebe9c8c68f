"""``gsb cache ls|verify|prune|clear``: the kernels on disk and the database of measured plans."""

from __future__ import annotations

import argparse
import sys

from ..config import number_of_bytes
from .described import described
from .tables import show

_ACTIONS = {
    "ls": "list the kernels, those used last first, and the measured plans",
    "verify": "read and hash everything; the exit code is 1 when something is damaged",
    "prune": "delete kernels of other versions, and those not used for longest beyond GSB_CACHE_BYTES",
    "clear": "delete the kernels and the measured plans",
}
_LISTED = 40


def add(commands) -> None:
    command = commands.add_parser(
        "cache",
        help="list, verify, prune or clear kernels and measured plans",
        description="The kernels on disk and the measured plans of this user.",
    )
    actions = command.add_subparsers(required=True, metavar="action")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.set_defaults(run=run, action=name)
        if name == "ls":
            action.add_argument("--all", action="store_true", help=f"all kernels, not the last {_LISTED} alone")
        if name == "prune":
            action.add_argument("--bytes", type=_bytes, metavar="B", help="room to leave, such as 500MB or 0")


def _bytes(text: str) -> int:
    try:
        return number_of_bytes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes, such as 500MB or 2GB") from None


def run(options: argparse.Namespace) -> int:
    """1 when something is damaged or the folder cannot be used, otherwise 0."""
    from ..compiler.cache import DiskCache, UnsafeCacheError
    from ..planner.database import PlanDatabase

    action = {"ls": _list, "verify": _verify, "prune": _prune, "clear": _clear}[options.action]
    try:
        return action(DiskCache(), PlanDatabase(), options)
    except BrokenPipeError:
        raise
    except (UnsafeCacheError, OSError, ValueError) as error:
        print(f"gsb cache: {error}", file=sys.stderr)
        return 1


def _list(kernels, plans, options) -> int:
    from ..compiler.cache.bound import Usage, bound
    from ..planner.cost import provenance
    from ..planner.words import size
    from ..system import architecture

    used = Usage.of(kernels.root)
    folders = [use.folder for use in reversed(used.entries)]
    programs = kernels.programs(folders if options.all else folders[:_LISTED])
    listed = [(entry, described(program)) for entry, program in programs]
    print(f"{len(folders):,} kernels in {kernels.root}, {size(used.bytes)} of {size(bound())} at most")
    rows = [
        (entry.key[:8], entry.name, ", ".join(words.operands), f"{entry.compile_seconds:.2f} s", words.message)
        for entry, words in listed
    ]
    if rows:
        show(rows, ("kernel", "name", "operands and results", "made in", "message"), right=("made in",))
        targets = dict.fromkeys(entry.target for entry, _ in listed)
        print("for " + ", ".join(targets))
    if len(folders) > len(rows):
        print(f"and {len(folders) - len(rows):,} more: gsb cache ls --all")
    records = plans.records()
    print(f"\n{len(records):,} measured problems in {plans.path}")
    rows = []
    for record in records:
        problem = record.problem
        use = "yes" if plans.usable(record) else record.machine
        if dict(record.versions) != plans.versions:
            use = "another version"
        rows.append(
            (
                record.fingerprint[:8],
                f"{problem.rows:,} x {problem.cols:,}, {problem.nnz:,}",
                f"{problem.kind}, {problem.features} {problem.dtype}, {problem.threads} threads",
                f"{record.seconds[0][1] * 1e6:,.1f}",
                f"{record.best}" + ("" if use == "yes" else f" (not used here: {use})"),
            )
        )
    if rows:
        show(rows, ("on", "size", "operator", "µs", "fastest plan"), right=("µs",))
    known = "measured on this machine" if plans.calibrated else f"defaults, {provenance(architecture())}"
    print(f"constants of the cost model: {known}")
    return 0


def _verify(kernels, plans, options) -> int:
    problems = [*kernels.verify(), *plans.verify()]
    for problem in problems:
        print(problem)
    print(
        f"{len(kernels.entries())} kernels, {len(plans.records())} measured problems: "
        f"{f'{len(problems)} damaged, rebuilt when next asked for' if problems else 'all good'}"
    )
    return int(bool(problems))


def _prune(kernels, plans, options) -> int:
    from ..planner.words import size

    done = kernels.prune(options.bytes)
    if done is None:
        print("gsb cache: another process is making room", file=sys.stderr)
        return 1
    print(
        f"{done.outdated:,} kernels of other versions and {done.oldest:,} not used for longest deleted, "
        f"{size(done.freed)}; {len(done.left.entries):,} are left, {size(done.left.bytes)}"
    )
    return 0


def _clear(kernels, plans, options) -> int:
    records = plans.clear()
    print(f"{kernels.clear()} kernels and {records} measured problems deleted")
    return 0
