"""Reading features from their file: ``python -m benchmarks.large.reading``.

In order and in random batches, by ``gsb.load_features``, beside what the disk gives: large reads in order, and reads of
single rows by as many threads. The file is dropped from the system's memory before each way.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

import gnn_sparse_backend as gsb
from benchmarks.support import cli, machine, report

WIDTH = 128
BLOCK = 8 << 20


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large.reading",
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--mib", type=cli.positive_int, default=512, help="size of the file")
    parser.add_argument("--rows", type=cli.positive_int, default=20_000, help="rows of a batch")
    parser.add_argument("--readers", type=cli.positive_int, default=16, help="reads under way at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--data", type=Path, default=Path("out/large"), help="folder of the file, on the disk to look at"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of reading.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file, read it in each way, print the table, and write ``reading.json``."""
    options, console = arguments(argv), Console()
    rows = (options.mib << 20) // (WIDTH * 4)
    path = options.data / f"reading-{options.mib}-{options.seed}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(options.seed)
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, WIDTH))
        for first in range(0, rows, 1 << 16):
            array[first : first + (1 << 16)] = rng.random((min(1 << 16, rows - first), WIDTH), np.float32)
        array.flush()
        del array
    wanted = torch.from_numpy(np.random.default_rng(options.seed).integers(rows, size=options.rows))
    results = {
        "machine": machine.describe(torch.get_num_threads()),
        "mib": options.mib,
        "rows": options.rows,
        "seconds": {name: timed(way, path) for name, way in ways(path, wanted, options.readers).items()},
    }
    machine.write_json(options.out / "reading.json", results)
    show(results, console)
    return 0


def ways(path: Path, wanted: torch.Tensor, readers: int) -> dict[str, Callable[[], object]]:
    """Each way to read the file, or the wanted rows of it."""
    header = np.load(path, mmap_mode="r").offset

    def in_blocks() -> None:
        with open(path, "rb", buffering=0) as file:
            block = bytearray(BLOCK)
            while file.readinto(block):
                pass

    def in_order() -> None:
        features = gsb.load_features(path, threads=readers)
        step, count = BLOCK // (WIDTH * 4), len(features)
        features.read_ahead(0, min(2 * step, count))
        for first in range(0, count, step):
            last = min(first + step, count)
            features.read_ahead(min(last + step, count), min(last + 2 * step, count))
            features.tensor[first:last].sum()

    def by_row() -> None:
        file = os.open(path, os.O_RDONLY)
        try:
            with ThreadPoolExecutor(readers) as pool:
                parts = wanted.tensor_split(readers)
                list(
                    pool.map(lambda part: [os.pread(file, WIDTH * 4, header + row * WIDTH * 4) for row in part], parts)
                )
        finally:
            os.close(file)

    return {
        "in order: the disk": in_blocks,
        "in order: load_features, ahead": in_order,
        "a batch: the disk, row by row": by_row,
        "a batch: load_features": lambda: gsb.load_features(path, threads=readers)[wanted],
        "a batch: a mapped tensor": lambda: torch.from_numpy(np.load(path, mmap_mode="c")).index_select(0, wanted),
    }


def timed(way: Callable[[], object], path: Path) -> float:
    """Seconds of a way with nothing of the file in memory."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def show(results: dict, console: Console) -> None:
    """The table of rates, and how they are to the disk's."""
    console.print(machine.one_line(results["machine"]))
    table = report.table(
        f"{results['mib']} MiB in order, {results['rows']:,} rows of {WIDTH * 4} bytes at random",
        ("way",),
        ("seconds", "MB/s", "of the disk's"),
    )
    read = {"in order": results["mib"] << 20, "a batch": results["rows"] * WIDTH * 4}
    for kind, group in itertools.groupby(results["seconds"].items(), lambda item: item[0].partition(":")[0]):
        found = list(group)
        for name, seconds in found:
            table.add_row(name, f"{seconds:.3f}", f"{read[kind] / seconds / 1e6:,.0f}", f"{found[0][1] / seconds:.2f}")
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
