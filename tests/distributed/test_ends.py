"""A process that ends or hangs ends the others with an error; processes share the cache of kernels."""

from __future__ import annotations

import time

import pytest

import gnn_sparse_backend as gsb

from . import cases, ends
from .processes import TIMEOUT, together


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_the_others_are_told(how, tmp_path):
    gsb.distributed.partition(cases.whole("square"), 2, tmp_path / "parts", "range")
    together(2, ends.one_is_gone, tmp_path, tmp_path / "parts", how)


@pytest.mark.slow
def test_each_kernel_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("GSB_CACHE_DIR", str(tmp_path / "cache"))
    gsb.distributed.partition(cases.whole("square"), 2, tmp_path / "parts", "range")
    together(2, ends.compiles_once, tmp_path, tmp_path / "parts", tmp_path)
    counts = [[int(each) for each in (tmp_path / str(rank)).read_text().split()] for rank in range(2)]
    (first, loaded), (second, loaded_too) = counts
    kept = len(list((tmp_path / "cache").rglob("*.so")))
    assert first + second == kept > 0 and first + loaded == second + loaded_too == kept


def _fails(rank: int) -> None:
    if rank == 1:
        raise ValueError("process 1 does not want to")
    time.sleep(10 * TIMEOUT)


@pytest.mark.slow
def test_an_error_of_one_ends_all(tmp_path):
    with pytest.raises(Exception, match="process 1 does not want to"):  # and no TimeoutError
        together(2, _fails, tmp_path)
