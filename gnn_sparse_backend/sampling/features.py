"""``gsb.load_features``: features that stay in their file, whose rows are read ahead of who wants them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .. import system
from ..runtime.accounts import FILES

THREADS = 16
"""Reads under way at a time: a disk answers many at once, and one thread has one."""
BLOCK = 4 << 20
"""Bytes that a thread reads in the order of the file, so much of them at a time:"""
ASIDE = 1 << 20


class Features:
    """Rows in a file that is mapped into memory.

    Attributes:
        tensor: all of them, (rows, ...), on the CPU. Who reads it has the file's pages read as they are touched; who
            writes to it writes to copies of these pages, and the file stays what it is.
        path: the file.
    """

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], dtype: torch.dtype, threads: int) -> None:
        self._file = open(path, "rb", buffering=0)  # for as long as it is read from
        self._mapped = system.map_file(self._file.fileno())
        count = int(np.prod(shape, dtype=np.int64))
        flat = torch.frombuffer(self._mapped, dtype=dtype, count=count, offset=offset)
        self.tensor, self.path, self._offset = flat.view(shape), path, offset
        self._row = self.tensor[0].nbytes
        self._readers = ThreadPoolExecutor(threads, "gsb-features")
        self._ahead = ThreadPoolExecutor(1, "gsb-features-ahead")
        self._threads, self._aside = threads, threading.local()
        FILES[self.tensor.untyped_storage().data_ptr()] = self

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """The rows of these numbers, (n,) of an integer type, read by several threads at a time.

        Raises:
            TypeError: ``rows`` are no integers in a vector.
            IndexError: one of them is no row.
        """
        if not isinstance(rows, Tensor) or rows.dtype not in (torch.int32, torch.int64) or rows.dim() != 1:
            raise TypeError(f"features: rows must be a vector of int32 or int64, got {_described(rows)}")
        low, high = (int(x) for x in rows.aminmax()) if rows.numel() else (0, 0)
        if low < 0 or high >= len(self):
            raise IndexError(f"features: row {low if low < 0 else high} is none of the {len(self)} rows of {self.path}")
        out = self.tensor.new_empty((rows.numel(), *self.tensor.shape[1:]))
        parts = list(zip(rows.tensor_split(self._threads), out.tensor_split(self._threads)))
        list(self._readers.map(lambda part: torch.index_select(self.tensor, 0, part[0], out=part[1]), parts))
        return out

    def ahead(self, rows: Tensor) -> Future[Tensor]:
        """Begin to read rows, and return at once: ``ahead(rows).result()`` are ``self[rows]``."""
        return self._ahead.submit(self.__getitem__, rows)

    def read_ahead(self, first: int = 0, last: int | None = None) -> None:
        """Have rows from first to last (exclusive) read in their order, so that the system has them in memory, and
        return at once.
        """
        if not system.reads_at_places():
            return
        end = self._offset + (len(self) if last is None else last) * self._row
        for begin in range(self._offset + first * self._row, end, BLOCK):
            self._readers.submit(self._touch, min(BLOCK, end - begin), begin)

    def _touch(self, length: int, begin: int) -> None:
        """Read to where nobody looks, in memory that the thread has already: fresh memory costs as much as reading."""
        if not hasattr(self._aside, "memory"):
            self._aside.memory = memoryview(bytearray(ASIDE))
        for at in range(begin, begin + length, ASIDE):
            os.preadv(self._file.fileno(), [self._aside.memory[: begin + length - at]], at)

    def __repr__(self) -> str:
        return f"Features({os.fspath(self.path)!r}, {tuple(self.shape)}, {self.dtype})"


def load_features(
    path: str | os.PathLike[str],
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | str | None = None,
    *,
    threads: int = THREADS,
) -> Features:
    """Map a file of features into memory, so that it may be larger than that.

        features = gsb.load_features("features.npy")
        x = features.tensor                      # of full-graph layers
        pending = features.ahead(batches[0])     # of sampled batches
        for at in range(len(batches)):
            x, pending = pending.result(), features.ahead(batches[(at + 1) % len(batches)])

    Layers by chunks of rows (``gsb.checkpoint_layers`` with ``memory="low"``) read such features in the order of their
    file, the next chunk ahead, and map them before they sum.

    Args:
        path: of a ``.npy`` file in C order, or of a raw one.
        shape: of a raw file: (rows, ...). A first length of -1 is what the file has.
        dtype: of a raw file, ``torch.bfloat16`` among them.
        threads: reads under way at a time.

    Raises:
        TypeError: a raw file without ``shape`` and ``dtype``, or either for a ``.npy`` file.
        ValueError: the array is not in C order or has a type that PyTorch does not know, or the file is too short.
        OSError: there is no such file.
    """
    path = Path(path)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"load_features: threads must be at least 1, got {threads!r}")
    if path.suffix == ".npy":
        if shape is not None or dtype is not None:
            raise TypeError(f"load_features: {path} says itself what shape and dtype it has: leave them out")
        array = np.load(path, mmap_mode="r")
        if not array.flags.c_contiguous or array.ndim == 0 or array.size == 0:
            raise ValueError(f"load_features: {path} must hold rows in C order, got an array of shape {array.shape}")
        try:
            kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        except TypeError:
            raise ValueError(
                f"load_features: {path} has numbers of type {array.dtype}, which PyTorch has not"
            ) from None
        return Features(path, array.offset, array.shape, kind, threads)
    if shape is None or dtype is None:
        raise TypeError(f"load_features: {path} is no .npy file: give shape and dtype")
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"load_features: dtype must be one of PyTorch's, got {dtype!r}")
    rows, *rest = (int(length) for length in shape)
    row, size = int(np.prod(rest, dtype=np.int64)) * kind.itemsize, path.stat().st_size
    if rows == -1 and row:
        rows = size // row
    if rows < 1 or row < 1 or rows * row > size:
        raise ValueError(f"load_features: {tuple(shape)} of {kind} is not what {path} has, with its {size:,} bytes")
    return Features(path, 0, (rows, *rest), kind, threads)


def _described(x: object) -> str:
    return f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
