"""Tests of this folder need spconv."""

import pytest
import torch

pytest.importorskip("spconv.pytorch", reason="spconv is not installed: it has wheels for Linux on x86-64")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
