"""Fixtures for the tests of models."""

from __future__ import annotations

import pytest


@pytest.fixture
def device(request) -> str:
    """Where models are trained: as ``--device`` says."""
    chosen = request.config.getoption("--device")
    if (
        chosen == "cuda"
        and getattr(request.node, "callspec", None)
        and request.node.callspec.params.get("framework") == "dgl"
    ):
        pytest.skip("--device cuda: DGL's wheel has no CUDA")
    return chosen
