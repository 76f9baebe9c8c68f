"""cuSPARSE by ctypes, without a GPU: what is missing is said, statuses are quoted, and each algorithm is analysed
once.
"""

from __future__ import annotations

import ctypes

import pytest
import torch

from benchmarks.operators import cusparse
from benchmarks.operators.suite import CannotDo
from benchmarks.support.gpu import timing as gpu_timing


class Library:
    """Records calls; products by an algorithm of ``refused`` have a status that is not zero."""

    def __init__(self, refused=()):
        self.calls, self.refused = [], refused

    def __getattr__(self, name):
        def call(*arguments):
            assert len(arguments) == len(cusparse.SIGNATURES[name])
            if name.startswith("cusparseSpMM"):
                self.calls.append((name.partition("_")[2], arguments[9]))
                if arguments[9] in self.refused:
                    return 10
                if name.endswith("bufferSize"):
                    ctypes.c_size_t.from_address(arguments[10]).value = 64
            return 0

        return call


@pytest.fixture
def operands(monkeypatch):
    class Stream:
        cuda_stream = 0

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream)
    taken = iter([3.0, 1.0, 2.0])  # the second is the fastest
    monkeypatch.setattr(gpu_timing, "seconds", lambda call, device, flush: next(taken))
    indptr, indices = torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([0, 0, 1], dtype=torch.int32)
    return indptr, indices, torch.ones(3), torch.ones(2, 4), 2


def test_each_algorithm_is_analysed_once_and_the_fastest_is_kept(operands):
    library = Library()
    call = cusparse._fastest(library, *operands)
    first, second, third = cusparse.ALGORITHMS.values()
    assert library.calls == [
        (step, algorithm) for algorithm in (first, second, third) for step in ("bufferSize", "preprocess", "")
    ]
    library.calls.clear()
    assert call().shape == (2, 4) and call().shape == (2, 4)
    assert library.calls == [("", second)] * 2


def test_algorithms_that_it_refuses_are_left_out(operands):
    first, second, third = cusparse.ALGORITHMS.values()
    library = Library(refused=(first, third))
    cusparse._fastest(library, *operands)()
    assert library.calls[-1] == ("", second)
    with pytest.raises(CannotDo, match="not available: cusparseSpMM_bufferSize gives status 10"):
        cusparse._fastest(Library(refused=(first, second, third)), *operands)


def test_where_it_is_not_there_it_says_so(monkeypatch):
    monkeypatch.setattr(cusparse, "LIBRARIES", ("libnot_here.so",))
    cusparse.load.cache_clear()
    with pytest.raises(CannotDo, match="not available: no libcusparse"):
        cusparse.load()
    with pytest.raises(CannotDo, match="on a GPU alone"):
        cusparse.product(*[torch.ones(2)] * 4, 1)
