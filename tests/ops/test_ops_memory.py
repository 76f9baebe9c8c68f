"""Where results are put: huge pages for large outputs, and memory that is used again."""

import subprocess
import sys
import textwrap

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops import memory


def faults(body: str) -> int:
    """Minor page faults of a fresh process while it runs ``body``."""
    script = "import resource, torch, gnn_sparse_backend as gsb\nfrom gnn_sparse_backend.ops import memory\n"
    script += "def minor(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
    script += textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults are counted on Linux")

LOOP = """
    {setting}
    for _ in range(20):
        torch.empty(1 << 24).fill_(1)
    start = minor()
    for _ in range(5):
        torch.empty(1 << 24).fill_(1)
    print(minor() - start)
"""


@linux
def test_freed_memory_is_used_again():
    if not gsb.reuse_memory(False):
        pytest.skip("another C library")
    assert faults(LOOP.format(setting="gsb.reuse_memory()")) < 1000
    # a tensor of 64 MB has 16,384 pages of 4 KiB
    assert faults(LOOP.format(setting="gsb.reuse_memory(); gsb.reuse_memory(False)")) > 5 * 1000


@pytest.mark.parametrize("shape", [(0, 4), (3, 5), (1 << 20, 2), (1 << 19, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_plain_tensors(shape, dtype):
    out = memory.empty(torch.empty(1, dtype=dtype), *shape)
    assert out.shape == shape and out.dtype == dtype and out.is_contiguous() and not out.requires_grad
    out.fill_(2)
    assert bool((out == 2).all())


def test_a_refused_hint_changes_nothing(monkeypatch):
    monkeypatch.setattr(memory, "_madvise", lambda: lambda *hint: -1)
    assert memory.empty(torch.empty(1), 1 << 21).fill_(3).sum() == 3 * (1 << 21)
    monkeypatch.setattr(memory, "_madvise", lambda: None)
    assert memory.empty(torch.empty(1), 1 << 21).fill_(3).sum() == 3 * (1 << 21)
