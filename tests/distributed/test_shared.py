"""Memory that processes share, in one process that is both the owner and the reader."""

from __future__ import annotations

import os

import pytest
import torch

from gnn_sparse_backend.distributed.shared import SharedMemory

PIDS = [os.getpid()] * 2


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no anonymous files")
def test_rows_are_there_for_a_reader_that_comes_late():
    owner, reader = SharedMemory(0, PIDS), SharedMemory(1, PIDS)
    wanted = torch.arange(6.0).view(3, 2)
    rows, told = owner.write((3, 2), torch.float32, [0, 3])
    file = int(told[1, 0])
    rows.copy_(wanted)
    del rows, owner  # its graph has gone, as at the end of a function
    found = reader.read(0, told[1].tolist(), (3, 2), torch.float32)
    assert torch.equal(found, wanted)
    SharedMemory(0, PIDS)
    assert os.fstat(file)  # still read
    del found
    SharedMemory(0, PIDS)
    with pytest.raises(OSError):
        os.fstat(file)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no anonymous files")
def test_memory_that_nobody_reads_is_written_again():
    owner, reader = SharedMemory(0, PIDS), SharedMemory(1, PIDS)
    files = []
    for count in (4, 2, 8):
        rows, told = owner.write((count, 1), torch.float64, [0, count])
        rows.fill_(count)
        files.append(int(told[1, 0]))
        read = reader.read(0, told[1].tolist(), (count, 1), torch.float64)
        assert torch.equal(read, torch.full((count, 1), float(count)).double())
        del read
    assert len(set(files)) == 1
    held = [owner.write((2, 1), torch.float64, [0, 2])[1] for _ in range(2)]
    assert len({int(each[1, 0]) for each in held}) == 2
