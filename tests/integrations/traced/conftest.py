"""Every test compiles anew, and counts from nothing."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    gsb.integrations.reset_status()
    yield
    gsb.disable()
    torch._dynamo.reset()
