"""Command-line arguments and settings that all benchmarks share."""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from rich.console import Console

FRAMEWORKS = {"dgl": "dgl", "pyg": "torch_geometric"}


def parser(
    description: str, *, budget: float, parents: Iterable[argparse.ArgumentParser] = ()
) -> argparse.ArgumentParser:
    """A parser with the shared arguments; ``budget`` is the default of ``--budget`` in seconds. parents: as argparse
    has it.
    """
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter, parents=list(parents)
    )
    result.add_argument("--quick", action="store_true", help="a small selection in about a minute, for a first look")
    result.add_argument("--threads", type=positive_int, default=2, help="threads of every contender that has any")
    result.add_argument(
        "--budget",
        type=_positive_float,
        default=budget,
        metavar="SECONDS",
        help="time for the measurements; preparation comes on top",
    )
    result.add_argument("--seed", type=int, default=0, help="of the generated graphs and values")
    result.add_argument("--out", type=Path, default=Path("out"), help="folder of the JSON and PNG files")
    return result


def add_append(parser: argparse.ArgumentParser) -> None:
    """``--append``, for benchmarks that can be measured piece by piece (``merging``)."""
    parser.add_argument(
        "--append",
        action="store_true",
        help="keep the cells of the report that --out holds already; those measured again are replaced",
    )


def add_processor_time(parser: argparse.ArgumentParser) -> None:
    """``--processor-time``, for benchmarks whose contenders are timed by `clock`."""
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="of all threads, in the place of time on the clock: for machines that others share, with --threads 1",
    )


def clock(options: argparse.Namespace) -> Callable[[], float]:
    """What gives the seconds that the options ask for."""
    return time.process_time if options.processor_time else time.perf_counter


def add_reuse_memory(parser: argparse.ArgumentParser) -> None:
    """``--reuse-memory``, for benchmarks that compare libraries in one process."""
    parser.add_argument(
        "--reuse-memory",
        action="store_true",
        help="all contenders with gsb.reuse_memory, as while a framework is enabled: the memory of freed large tensors "
        "serves the next ones, theirs as ours",
    )


def start(options: argparse.Namespace) -> Console:
    """Set the threads and the allocator, hide the libraries' warnings, and give a console for the report. A signal to
    stop ends the processes that were started as well: one left behind would disturb whatever is measured next.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)
    set_threads(options.threads)
    quiet_libraries()
    console = Console()
    if getattr(options, "reuse_memory", False):
        # not before the threads are set, which the package's libraries read when they load
        import gnn_sparse_backend as gsb

        if not gsb.reuse_memory():
            console.print("[yellow]--reuse-memory:[/] gsb.reuse_memory() cannot be done here; memory is given back")
    return console


def _stop(number: int, frame) -> None:
    for child in multiprocessing.active_children():
        child.kill()
    raise SystemExit(128 + number)


def installed(names: Iterable[str], console: Console) -> list[str]:
    """Those frameworks of ``names`` that are installed; the others are named on the console."""
    found = []
    for name in names:
        if importlib.util.find_spec(FRAMEWORKS[name]) is None:
            console.print(f"[yellow]{name} skipped:[/] {FRAMEWORKS[name]} is not installed")
        else:
            found.append(name)
    return found


def set_threads(threads: int) -> None:
    """Give every library the same number of threads.

    The environment is read by OpenMP, MKL and TVM when they load, so call this before DGL or our package is imported.
    """
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ[variable] = str(threads)
    torch.set_num_threads(threads)


def quiet_libraries() -> None:
    """Hide the frameworks' start-up warnings (beta state of CSR tensors, deprecated imports), which drown the
    tables.
    """
    for message in ("Sparse CSR tensor support", "Sparse invariant checks"):
        warnings.filterwarnings("ignore", message=message)
    for module in ("dgl", "torch_geometric", "torchdata"):
        warnings.filterwarnings("ignore", module=module)


def positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
