"""Settings of the face are as at its import in every test."""

import pytest
import torch

from gnn_sparse_backend.integrations.torchsparse import conventions, sites, tensor
from gnn_sparse_backend.integrations.torchsparse.nn import functional as F


@pytest.fixture(autouse=True)
def as_imported():
    torch.manual_seed(0)
    yield
    conventions.follow()
    tensor.set_allow_negative_coordinates(False)
    F.set_kmap_mode("hashmap_on_the_fly")
    F.set_downsample_mode("spconv")
    F.clear_global_conv_config()
    sites.forget_all()
