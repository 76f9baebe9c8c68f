"""Tests of this folder need spconv."""

import pytest
import torch

pytest.importorskip("spconv.pytorch", reason="spconv is not installed: it has wheels for Linux on x86-64")


@pytest.fixture(autouse=True)
def seeded():
    """On one thread: on several spconv 2.3.8 itself adds to wrong rows now and then."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
