"""Tests of this folder have the face of MinkowskiEngine."""

import pytest
import torch

import gnn_sparse_backend as gsb


@pytest.fixture
def ME():
    torch.manual_seed(0)
    with gsb.enabled("MinkowskiEngine"):
        import MinkowskiEngine

        yield MinkowskiEngine
        MinkowskiEngine.set_sparse_tensor_operation_mode(
            MinkowskiEngine.SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER
        )
        MinkowskiEngine.clear_global_coordinate_manager()
