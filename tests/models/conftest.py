"""Fixtures for the tests of models."""
from __future__ import annotations

import pytest
import torch


@pytest.fixture
def one_thread():
    """Small tensors: more threads only wait for each other, and sums keep one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
