"""Tests of this folder need PyTorch Geometric."""

import pytest

pytest.importorskip("torch_geometric")
