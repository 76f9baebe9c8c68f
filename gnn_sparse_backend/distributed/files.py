"""Arrays of a part as files that are mapped, not read, and their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

_CHUNK = 1 << 22


def save(folder: Path, name: str, array: np.ndarray) -> dict:
    """Write an array; returns what the manifest says of it."""
    np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return _told(folder, name, array)


def save_rows(folder: Path, name: str, array: np.ndarray, rows: np.ndarray) -> dict:
    """Write rows of an array, a few at a time, so that a mapped array need not fit into memory."""
    shape = (rows.size, *array.shape[1:])
    if rows.size == 0:
        return save(folder, name, np.empty(shape, array.dtype))
    out = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", array.dtype, shape)
    step = max(1, _CHUNK // max(1, array[:1].nbytes))
    for start in range(0, rows.size, step):
        out[start : start + step] = array[rows[start : start + step]]
    out.flush()
    return _told(folder, name, out)


def mapped(folder: Path, name: str, told: Mapping, verify: bool) -> torch.Tensor:
    """The array of a file, mapped: what is written to it is this process's own."""
    path = folder / f"{name}.npy"
    if not path.is_file():
        raise FileNotFoundError(f"DistGraph.load: {path} is missing; run gsb.distributed.partition again")
    if verify and _hash(path) != told["sha256"]:
        raise ValueError(f"DistGraph.load: {path} is not what its manifest says; run gsb.distributed.partition again")
    array = np.load(path, mmap_mode="c" if told["shape"] and 0 not in told["shape"] else None, allow_pickle=False)
    return torch.from_numpy(array)


def _told(folder: Path, name: str, array: np.ndarray) -> dict:
    return {"sha256": _hash(folder / f"{name}.npy"), "shape": list(array.shape), "dtype": str(array.dtype)}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.sha256()
        while block := file.read(_CHUNK):
            found.update(block)
    return found.hexdigest()
