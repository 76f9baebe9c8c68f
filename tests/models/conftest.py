"""Fixtures for the tests of models."""
from __future__ import annotations

import pytest


@pytest.fixture
def one_thread(set_threads):
    """Small tensors: more threads only wait for each other, and sums keep one order."""
    set_threads(1)
