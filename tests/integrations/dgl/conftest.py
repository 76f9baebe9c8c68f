"""Tests of this folder need DGL."""

import pytest

pytest.importorskip("dgl")


@pytest.fixture(params=["random", "skewed", "duplicates", "self_loops", "long_row", "one_edge"])
def square(request, zoo):
    from tests.integrations.dgl.oracle import homogeneous  # which needs DGL

    return homogeneous(*zoo[request.param])
