"""What is made before a run and travels to the machine with a GPU: machine code of the kernels, and the real data sets.

Kernels are compiled by the parts themselves, on an acted driver, through the very dispatch; so the keys that they are
kept under are those that a run looks for. Generated graphs are made there, by seed.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.gpu.registry import Part
from benchmarks.gpu.runner import Run
from benchmarks.gpu.told import FAILED, PREPARE, read_lines

KERNELS, DATA, LABEL = "kernels.tar.xz", "data", "kit.json"
MOST_BYTES = 20 << 20
PATIENCE_S = 3 * 3600.0
"""For each part's kernels."""


def prepare(folder: Path, architectures: Sequence[str], parts: Sequence[Part], console: Console, small: bool) -> int:
    """Compile what the parts launch, for each architecture, and pack it with the data of ``GSB_DATA``.

    A later call goes on with what an earlier one has compiled, also where that was stopped. small: what a rehearsal
    launches. 1 if a part failed or the kit is too large, else 0. Raises acted_driver.CannotAct on a machine with a
    driver.
    """
    from benchmarks.support.gpu import acted_driver
    from gnn_sparse_backend.compiler.codegen.cuda.library import cuda_compiler

    folder.mkdir(parents=True, exist_ok=True)
    bad = False
    with tempfile.TemporaryDirectory(prefix="gsb-gpu-") as scratch:
        driver, cache = acted_driver.make(Path(scratch, "driver"), gpus=1), Path(scratch, "cache")
        if (folder / KERNELS).exists():
            _extract(folder / KERNELS, cache)

        def ended(words: str) -> None:
            console.print(words)
            _pack(cache, folder / KERNELS)  # one that is killed leaves the parts that ended

        try:
            for arch in architectures:
                end = time.monotonic() + len(parts) * PATIENCE_S
                run = Run(Path(scratch, arch), Path(scratch, "work"), end, PATIENCE_S, PREPARE, arch, small)
                run.environment = acted_driver.environment(driver, GSB_CACHE_DIR=str(cache))
                console.print(f"for {arch}:")
                run.all([part for part in parts if part.launches], ended)
                failures = [line for line in read_lines(run.lines) if line["state"] == FAILED]
                for line in failures:
                    console.print(f"FAILED {line['part']}: {line['where']}: {line.get('why')}", markup=False)
                bad |= bool(failures) or any(words != "done" for words in run.ended.values())
        except BaseException:  # who stops it is told so
            _pack(cache, folder / KERNELS)
            raise
        _copy_data(folder / DATA)
        kernels = len(list(cache.glob("*/manifest.json")))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    label = {"made_by": cuda_compiler(), "architectures": list(architectures), "kernels": kernels, "bytes": size}
    (folder / LABEL).write_text(json.dumps(label) + "\n")
    console.print(f"{folder}: {kernels} kernels, {size / 2**20:.1f} MiB of {MOST_BYTES >> 20}")
    if size > MOST_BYTES:
        console.print(
            f"too large to travel: leave out an architecture or parts (--arch, --only), from a fresh {folder}"
        )
    return int(bad or size > MOST_BYTES)


def unpack(folder: Path, scratch: Path, console: Console) -> dict[str, str]:
    """Unpack a kit into a folder of this user's alone; the variables with which a process finds what is in it."""
    cache = scratch / "kernels"
    _extract(folder / KERNELS, cache)
    label = json.loads((folder / LABEL).read_text())
    console.print(f"{folder}: {label['kernels']} kernels by {label['made_by']} for {', '.join(label['architectures'])}")
    found = {"GSB_CACHE_DIR": str(cache), "GSB_CUDA_MADE_BY": label["made_by"]}
    if (folder / DATA).is_dir() and not os.environ.get("GSB_DATA"):
        found["GSB_DATA"] = str((folder / DATA).resolve())
    return found


def _pack(cache: Path, path: Path) -> None:
    partial = path.with_suffix(".partial")
    with tarfile.open(partial, "w:xz", preset=6) as archive:
        for entry in sorted(cache.glob("*/manifest.json")):
            archive.add(entry.parent, entry.parent.name)
    partial.replace(path)


def _extract(path: Path, folder: Path) -> None:
    """Owner, group and modes are this process's, for the cache refuses what others could write."""
    folder.mkdir(mode=0o700, parents=True)
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            target = folder / member.name
            if not target.resolve().is_relative_to(folder.resolve()) or not (member.isfile() or member.isdir()):
                raise ValueError(f"{path} has {member.name!r}, which is no file below it")
            if member.isdir():
                target.mkdir(mode=0o700, exist_ok=True)
                continue
            with archive.extractfile(member) as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o600)


def _copy_data(folder: Path) -> None:
    root = os.environ.get("GSB_DATA")
    if root and not folder.exists():
        shutil.copytree(root, folder, copy_function=shutil.copyfile)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
