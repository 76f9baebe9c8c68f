"""A process that ends or hangs ends the others with an error; processes share the cache of kernels."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import DiskCache

from . import cases, ends
from .processes import TIMEOUT, together, torchrun


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_the_others_are_told(how, shared, tmp_path):
    gsb.distributed.partition(cases.whole("square"), 2, tmp_path / "parts", "range")
    together(2, ends.one_is_gone, tmp_path, tmp_path / "parts", how, shared)


@pytest.mark.slow
def test_torchrun_leaves_nobody_behind(tmp_path):
    """One process hangs: the other has an error after its timeout, and torchrun ends both."""
    gsb.distributed.partition(cases.whole("square"), 2, tmp_path / "parts", "range")
    done = torchrun("tests.distributed.ends", tmp_path)
    took = time.time() - max((tmp_path / f"begun{rank}").stat().st_mtime for rank in range(2))
    assert done.returncode != 0 and "another process has ended or hangs" in done.stderr
    assert took < 2 * ends.WITHIN
    for rank in range(2):
        assert not Path("/proc", (tmp_path / f"pid{rank}").read_text()).exists()


@pytest.mark.slow
def test_plans_differ_by_part(tmp_path):
    gsb.distributed.partition(ends.unlike_parts(), 2, tmp_path / "parts", "range")
    together(2, ends.plans_are_of_parts, tmp_path, tmp_path / "parts", tmp_path)
    assert "scatter" in (tmp_path / "0").read_text() and "scatter" not in (tmp_path / "1").read_text()


@pytest.mark.slow
def test_each_kernel_is_compiled_once(tmp_path, own_cache):
    gsb.distributed.partition(cases.whole("square"), 2, tmp_path / "parts", "range")
    together(2, ends.compiles_once, tmp_path, tmp_path / "parts", tmp_path)
    counts = [[int(each) for each in (tmp_path / str(rank)).read_text().split()] for rank in range(2)]
    (first, loaded), (second, loaded_too) = counts
    kept = len(DiskCache(own_cache).entries())
    assert first + second == kept > 0 and first + loaded == second + loaded_too == kept


def _fails(rank: int) -> None:
    if rank == 1:
        raise ValueError("process 1 does not want to")
    time.sleep(10 * TIMEOUT)


@pytest.mark.slow
def test_an_error_of_one_ends_all(tmp_path):
    with pytest.raises(Exception, match="process 1 does not want to"):  # and no TimeoutError
        together(2, _fails, tmp_path)
