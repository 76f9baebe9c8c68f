"""PyG's ``EdgeIndex``; a test that makes one where the release has none is skipped."""

from __future__ import annotations

import pytest

try:
    from torch_geometric import EdgeIndex
except ImportError:

    def EdgeIndex(*given, **named):
        pytest.skip("this release of PyG has no EdgeIndex")


__all__ = ["EdgeIndex"]
