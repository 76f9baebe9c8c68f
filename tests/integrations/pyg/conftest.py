"""Every test of this folder starts with the backend off and no counts, and leaves it so."""
import pytest

pytest.importorskip("torch_geometric")

import gnn_sparse_backend as gsb  # noqa: E402
from gnn_sparse_backend.integrations import reset_status  # noqa: E402


@pytest.fixture(autouse=True)
def _clean():
    gsb.disable()
    reset_status()
    yield
    gsb.disable()
    reset_status()
