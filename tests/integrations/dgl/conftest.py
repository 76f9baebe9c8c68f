"""Every test starts and ends with the backend off and the counts at zero."""
import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status

pytest.importorskip("dgl")


@pytest.fixture(autouse=True)
def switched_off():
    gsb.disable()
    reset_status()
    yield
    gsb.disable()
    reset_status()


@pytest.fixture(params=["random", "skewed", "duplicates", "self_loops", "long_row", "one_edge"])
def square(request, zoo):
    from dgl_oracle import homogeneous  # which needs DGL

    return homogeneous(*zoo[request.param])
