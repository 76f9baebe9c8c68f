"""The sites of a tensor: how many batches they have, and indices that change where PyTorch does not see it."""

import pytest
import spconv.pytorch as spconv
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.spconv import maps

from .oracle import WIDTH, counts, layer, random_tensor, same_tensor


@pytest.mark.parametrize("name, arguments", [("SubMConv", (3,)), ("SparseConv", (3, 2, 1)), ("SparseMaxPool", (2, 2))])
def test_the_number_of_batches_may_be_a_tensor(name, arguments):
    """As mmdetection3d has it, which takes it from the last row of its coordinates."""
    x = random_tensor(2)
    channels = () if name == "SparseMaxPool" else (WIDTH, WIDTH)
    module = layer(name, 2, *channels, *arguments)
    wanted = module(x)
    with gsb.enabled("spconv"):
        for _ in range(3):
            x.batch_size = torch.tensor(2, dtype=torch.int32)
            found = module(x)
        ((_, entry),) = [item for item in maps._sites._entries.items() if item[1].reference() is x.indices]
        assert len(entry.values) == 1, "the three are one key"
    assert counts() == {name: 3}
    same_tensor(found, wanted)


WRITES = {
    "numpy": lambda indices, new: indices.numpy().__setitem__(..., new.numpy()),
    "data": lambda indices, new: indices.data.copy_(new),
    "one entry": lambda indices, new: indices.numpy().__setitem__(17, new.numpy()[17]),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["SubMConv", "SparseConv"])
def test_refilled_indices_have_other_sites(write, name):
    """A buffer that is filled for each scan; PyTorch does not count these writes."""
    module = layer(name, 2, WIDTH, WIDTH, 3)
    x = random_tensor(2)
    new = x.indices.clone()
    taken = set(map(tuple, new.tolist()))
    free = next((b, i, j) for b in range(2) for i in range(7) for j in range(6) if (b, i, j) not in taken)
    new[17] = torch.tensor(free)
    with gsb.enabled("spconv"):
        before = module(x)
        version = x.indices._version
        WRITES[write](x.indices, new)
        assert x.indices._version == version
        found = module(x)
    assert counts() == {name: 2}
    same_tensor(found, module(spconv.SparseConvTensor(x.features, new, x.spatial_shape, 2)))
    assert not torch.equal(found.features, before.features)


def test_results_that_are_refilled_have_other_sites():
    first, second = layer("SparseConv", 2, WIDTH, WIDTH, 3), layer("SubMConv", 2, WIDTH, WIDTH, 3)
    with gsb.enabled("spconv"):
        x = first(random_tensor(2))
        second(x)
        new = x.indices.flip(0)
        x.indices.numpy()[...] = new.numpy()
        found = second(x)
    same_tensor(found, second(spconv.SparseConvTensor(x.features, new, x.spatial_shape, 2)))
