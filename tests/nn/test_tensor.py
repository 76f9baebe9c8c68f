"""``SparseTensor``: arithmetic, batches, dense tensors, what it keeps, and what it refuses."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.autograd import gradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend import nn

SITES = torch.tensor([[1, 2, 0], [0, 3, 1], [0, 0, 0], [1, 0, 2]])


def some(channels: int = 3, dtype=torch.float32, sites=SITES, **given) -> nn.SparseTensor:
    torch.manual_seed(channels)
    return nn.SparseTensor(torch.randn(len(sites), channels, dtype=dtype), sites, **given)


def test_arithmetic_on_the_same_sites():
    x, y = some(), some() * 2
    for found, wanted in (
        (x + y, x.features + y.features),
        (x - y, x.features - y.features),
        (x * y, x.features * y.features),
        (x / y, x.features / y.features),
        (2 - x, 2 - x.features),
        (1 / x, 1 / x.features),
        (2 * x + 1, 2 * x.features + 1),
        (-x, -x.features),
        (x * torch.arange(3), x.features * torch.arange(3)),
        (x + some(), x.features * 2),  # other tensors, equal sites
        (nn.cat([x, y]), torch.cat([x.features, y.features], 1)),
    ):
        assert torch.equal(found.features, wanted) and found.coordinates is x.coordinates
    with pytest.raises(TypeError):
        x + "a"


@pytest.mark.parametrize(
    "other, words",
    [
        (some(sites=SITES.flip(0)), r"site 0 is \[1, 2, 0\] in one and \[1, 0, 2\] in another"),
        (some(sites=SITES[:3]), "4 sites, .* and Coordinates\\(3 sites"),
        (some(stride=2), r"stride \(1, 1\), .* stride \(2, 2\)"),
    ],
)
def test_other_sites_are_quoted(other, words):
    for operation in (lambda x, y: x + y, lambda x, y: nn.cat([x, y])):
        with pytest.raises(ValueError, match=words):
            operation(some(), other)


def test_bad_tensors_are_quoted():
    for arguments, error, words in (
        ((torch.ones(3, 2), SITES), ValueError, r"N = 4, a row for each site, got \(3, 2\)"),
        ((torch.ones(4), SITES), ValueError, r"got \(4,\)"),
        ((torch.ones(4, 2).long(), SITES), TypeError, "features must be float32, .* got torch.int64"),
        ((torch.ones(4, 2), SITES.float()), TypeError, "coordinates must hold integers, got torch.float32"),
        ((torch.ones(4, 2), SITES[[0, 1, 1, 2]]), ValueError, r"coordinates 2 and 1 are equal, \[0, 3, 1\]"),
    ):
        with pytest.raises(error, match=words):
            nn.SparseTensor(*arguments)
    with pytest.raises(TypeError, match="SubMConv takes a gnn_sparse_backend.nn.SparseTensor, got Tensor"):
        nn.SubMConv(3, 3, 3, dim=2)(torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"for 3 axes \(dim=3\), but the tensor has 2"):
        nn.SubMConv(3, 3, 3)(some())
    with pytest.raises(ValueError, match="groups must divide the channels, got groups 2 and c_in 3"):
        nn.SparseConv(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match=r"did not come from one of stride \(1, 1\)"):
        nn.SparseConvTranspose(3, 3, 2, 2, dim=2)(some(stride=2))
    with pytest.raises(ValueError, match=r"has no finer one by \(2, 2\)"):
        nn.SparseConvTranspose(3, 3, 2, 2, dim=2, generative=True)(some())
    with pytest.raises(ValueError, match="came from no other"):
        nn.SparseInverseConv(3, 3, 2, dim=2)(some())
    with pytest.raises(ValueError, match=r"\(3, 3\), got kernel_size \(2, 2\)"):
        nn.SparseInverseConv(3, 3, 2, dim=2)(nn.SparseConv(3, 3, 3, 2, dim=2)(some()))
    with pytest.raises(ValueError, match=r"4 inputs, .* got \(5, 3\)"):  # the map of another tensor
        gsb.sparse_conv(torch.ones(5, 3), torch.ones(9, 3, 3), some().kernel_map(3))


def test_batches_together_and_apart():
    x, y = some(batch_size=3), some(sites=SITES[1:3])
    both = nn.batch([x, y])
    assert both.batch_size == 4 and both.coordinates[:, 0].tolist() == [1, 0, 0, 1, 3, 3]
    parts = nn.unbatch(both)
    assert [len(part) for part in parts] == [2, 2, 0, 2]
    assert parts[0].coordinates.tolist() == [[0, 3, 1], [0, 0, 0]]  # in their order
    assert torch.equal(parts[3].features, y.features)
    assert torch.equal(nn.batch(parts).features, torch.cat([part.features for part in parts]))
    conv = nn.SubMConv(3, 2, 3, dim=2)
    torch.testing.assert_close(conv(both).features[4:], conv(y).features)
    with pytest.raises(ValueError, match="one stride, spatial shape and width"):
        nn.batch([x, some(2)])
    with pytest.raises(TypeError, match="at least one SparseTensor"):
        nn.batch([])


def test_to_and_from_dense():
    x = some(batch_size=3)
    dense = nn.to_dense(x)
    assert dense.shape == (3, 3, 4, 3)
    assert all(torch.equal(dense[b, :, i, j], f) for (b, i, j), f in zip(SITES.tolist(), x.features))
    assert dense.count_nonzero() == x.features.count_nonzero()
    back = nn.from_dense(dense)
    assert back.spatial_shape == (4, 3) and len(back) == 4
    assert torch.equal(nn.to_dense(back), dense)
    moved = nn.to_dense(x, (6, 5), (-2, -1))
    assert torch.equal(moved[:, :, 2:, 1:4], dense) and moved.count_nonzero() == dense.count_nonzero()
    with pytest.raises(ValueError, match=r"\[0, 3, 1\] is outside .* \(3, 3\) cells from \(0, 0\)"):
        nn.to_dense(x, (3, 3))
    features = torch.randn(4, 2, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda f: nn.to_dense(nn.SparseTensor(f, SITES)), features)
    dense.requires_grad_()
    (gradient,) = torch.autograd.grad(nn.from_dense(dense).features.sum(), dense)
    assert torch.equal(gradient, (dense.detach() != 0).any(1, keepdim=True).expand_as(dense).float())


def test_within_bounds_equals_a_dense_layer():
    """Word for word, bias and borders included."""
    dense = torch.randn(2, 3, 7, 6) * (torch.rand(2, 1, 7, 6) < 0.3)
    x = nn.from_dense(dense)
    conv = nn.SparseConv(3, 4, 3, (2, 1), padding=(1, 0), bias=False, dim=2)
    weight = conv.weight.unflatten(0, (3, 3)).movedim((-1, -2), (0, 1))
    found, wanted = conv(x), torch.nn.functional.conv2d(dense, weight, None, (2, 1), (1, 0))
    assert found.spatial_shape == tuple(wanted.shape[2:])
    torch.testing.assert_close(nn.to_dense(found), wanted, rtol=1e-5, atol=1e-5)


def test_copies_and_devices():
    x = nn.SparseConv(3, 3, 2, 2, dim=2)(some(batch_size=4)).detach()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert torch.equal(y.features, x.features) and torch.equal(y.coordinates, x.coordinates)
        assert y.stride == (2, 2) and y.batch_size == 4
        up = nn.SparseConvTranspose(3, 3, 2, 2, dim=2)
        assert torch.equal(up(y).features, up(x).features)
    assert x.to(torch.float64).dtype == torch.float64 and x.to("cpu") is x
    assert x.to(torch.float64).coordinates is x.coordinates
    kernel_map = pickle.loads(pickle.dumps(x.kernel_map(3)))
    assert torch.equal(kernel_map.inputs, x.kernel_map(3).inputs) and kernel_map.symmetric
    assert kernel_map.to("cpu") is kernel_map


def test_maps_with_the_sites_of_their_outputs():
    x, conv = some(), nn.SparseConv(3, 4, 3, 2, bias=False, dim=2)
    kernel_map, y = x.kernel_map(3, 2, outputs="reached", sites=True)
    y = y.with_features(gsb.sparse_conv(x.features, conv.weight, kernel_map))
    assert y.coordinates is conv(x).coordinates and torch.equal(y.features, conv(x).features)
    assert nn.SparseInverseConv(4, 4, 3, dim=2)(y).coordinates is x.coordinates


def test_maps_are_shared_and_counted():
    x = some()
    own = gsb.memory(x).nbytes
    a, b = nn.SubMConv(3, 4, 3, dim=2), nn.SubMConv(4, 5, 3, dim=2)
    y = b(a(x))
    assert y.kernel_map(3) is x.kernel_map(3) and x.kernel_map(3) is not x.kernel_map(3, dilation=2)
    down = nn.SparseConv(3, 4, 2, 2, dim=2)(x)
    assert nn.SparseConv(3, 4, 2, 2, dim=2)(x).coordinates is down.coordinates
    assert down.kernel_map(3) is down.kernel_map(3)
    assert nn.SparseInverseConv(4, 4, 2, dim=2)(down).coordinates is x.coordinates
    farther = nn.SparseConv(4, 4, 3, 2, dim=2)(down)
    back = nn.SparseInverseConv(4, 4, 3, dim=2)(farther)  # layers are inverted from the last one on
    assert back.coordinates is down.coordinates
    assert nn.SparseInverseConv(4, 4, 2, dim=2)(back).coordinates is x.coordinates
    held = gsb.memory(x)
    maps = [x.kernel_map(3), x.kernel_map(2, 2, outputs="reached")]
    wanted = sum(m.inputs.nbytes + m.outputs.nbytes + m.indptr.nbytes for m in maps)
    assert held.nbytes - own > wanted and "kernel map" in str(held) and "2x2" in str(held)
    assert gsb.memory(down).nbytes == gsb.memory(x).nbytes  # the way back
    x.release()
    assert gsb.memory(x).nbytes <= own
    with pytest.raises(TypeError, match="nn.SparseTensor, got int"):
        gsb.memory(3)


def test_order_of_input_is_kept():
    """Sites in another order: the same values, in that order."""
    torch.manual_seed(0)
    sites = torch.stack(torch.meshgrid(*[torch.arange(4)] * 3, indexing="ij"), -1).view(-1, 3)[::2]
    x = nn.SparseTensor(torch.randn(len(sites), 3), sites)
    order = torch.randperm(len(sites))
    turned = nn.SparseTensor(x.features[order], sites[order])
    net = torch.nn.Sequential(
        nn.SubMConv(3, 4, 3, dim=2),
        nn.ReLU(),
        nn.SparseConv(4, 4, 3, 2, dim=2),
        nn.SparseConvTranspose(4, 2, 3, 2, dim=2),
    )
    torch.testing.assert_close(net(turned).features, net(x).features[order])
