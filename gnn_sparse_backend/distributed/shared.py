"""Rows that go to processes of the same machine: written once into memory that both map, and read where they lie.

torch.distributed has no such way on CPUs: gloo, and the TensorPipe of its RPC, send through the loopback. Memory is
anonymous and found through the process that has it, so that nothing has to be removed when a process ends.
"""

from __future__ import annotations

import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..system import file_in_memory, path_of

_LINE = 64
_TOKEN = 16


@dataclass
class Buffer:
    """Memory of this process that others read. Its first bytes say of each process whether it still reads, and are set
    back by that process.
    """

    file: int
    block: mmap.mmap

    def lies(self, processes: int) -> bool:
        """Whether nobody reads it."""
        return not any(self.block[:processes])


class SharedMemory:
    """Buffers of the processes of one machine.

    Buffers that others have yet to read outlive it: a process that has what it wanted may be ahead of them.

    rank, pids: of this process, and of all. A buffer is used again when every reader has dropped what it read: then
    there are as many as exchanges that are needed at a time, each as large as the largest that it was used for.
    """

    _left: ClassVar[list[tuple[Buffer, int]]] = []  # with how many processes there are

    def __init__(self, rank: int, pids: Sequence[int]) -> None:
        self._close()
        self.rank, self.pids = rank, tuple(pids)
        self._begin = -(-len(pids) // _LINE) * _LINE
        self._own: list[Buffer] = []
        self._mapped: dict[tuple[int, int], mmap.mmap] = {}

    @classmethod
    def of(cls, group) -> SharedMemory | None:
        """The memory of the processes of a group, if all can read one another's, else None; every process asks."""
        if dist.get_backend(group) != "gloo":
            return None
        token = secrets.token_bytes(_TOKEN)
        file = _new_file("token", token)
        told: list = [None] * dist.get_world_size(group)
        dist.all_gather_object(told, (os.getpid(), file, token), group=group)
        near = torch.tensor(int(all(_reads(*each) for each in told)))
        dist.all_reduce(near, dist.ReduceOp.MIN, group=group)
        if file is not None:
            os.close(file)
        return cls(dist.get_rank(group), [pid for pid, *_ in told]) if near else None

    def write(self, shape: Sequence[int], dtype: torch.dtype, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Memory for rows that go to the processes, ``counts`` of them to each, one after the other; and a row of
        numbers for each process, by which it finds its own.
        """
        row_bytes = prod(shape[1:]) * dtype.itemsize
        buffer = self._free(self._begin + shape[0] * row_bytes)
        told, begin = torch.zeros(len(counts), 3, dtype=torch.int64), self._begin
        for process, count in enumerate(counts):
            nbytes = count * row_bytes
            told[process] = torch.tensor([buffer.file, begin, begin + nbytes])
            buffer.block[process] = nbytes > 0
            begin += nbytes
        if not prod(shape):
            return torch.empty(shape, dtype=dtype), told
        rows = torch.frombuffer(buffer.block, dtype=dtype, count=prod(shape), offset=self._begin)
        return rows.view(shape), told

    def read(self, process: int, told: Sequence[int], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Rows of another process where they lie, by what it told of them. It is free to write there again when the
        tensor has gone.
        """
        file, begin, end = told
        at = self.pids[process], file
        block = self._mapped.get(at)
        if block is None or len(block) < end:
            block = self._mapped[at] = _map(*at)
        view = memoryview(block)
        weakref.finalize(view, block.__setitem__, self.rank, 0).atexit = False
        return torch.frombuffer(view, dtype=dtype, count=prod(shape), offset=begin).view(shape)

    def _free(self, nbytes: int) -> Buffer:
        """Return a buffer of at least ``nbytes`` bytes that nobody reads."""
        free = [each for each in self._own if each.lies(len(self.pids))]
        large = [each for each in free if len(each.block) >= nbytes]
        if large:
            return min(large, key=lambda each: len(each.block))
        if not free:
            self._own.append(free_one := Buffer(file_in_memory("rows"), None))
        else:
            free_one = max(free, key=lambda each: len(each.block))
        os.ftruncate(free_one.file, nbytes)
        free_one.block = mmap.mmap(free_one.file, nbytes)
        return free_one

    def __del__(self) -> None:
        self._left.extend((each, len(self.pids)) for each in self._own)
        self._close()

    @classmethod
    def _close(cls) -> None:
        """Close what is left and nobody reads."""
        left, cls._left[:] = cls._left.copy(), []
        for each, processes in left:
            if each.lies(processes):
                os.close(each.file)
            else:
                cls._left.append((each, processes))


def _new_file(name: str, content: bytes) -> int | None:
    """An anonymous file; None where the system has none."""
    file = file_in_memory(name)
    if file is not None:
        os.write(file, content)
    return file


def _reads(pid: int, file: int | None, token: bytes) -> bool:
    """Whether this process can read such a file of that one: not on another machine, nor in another container."""
    if file is None:
        return False
    try:
        with open(_path(pid, file), "rb") as found:
            return found.read(_TOKEN + 1) == token
    except OSError:
        return False


def _map(pid: int, file: int) -> mmap.mmap:
    with open(_path(pid, file), "r+b") as found:
        return mmap.mmap(found.fileno(), 0)


def _path(pid: int, file: int) -> str:
    return path_of(file, pid)
