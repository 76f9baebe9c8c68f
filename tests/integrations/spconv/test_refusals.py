"""What is not ours runs as spconv runs it, or fails as it does, and is counted with the reason."""

import pytest
import spconv.pytorch as spconv
import torch
from spconv.core import ConvAlgo
from spconv.pytorch.conv import SparseConvolution
from spconv.pytorch.pool import SparseMaxPool

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.remedies import remedy_of

from .oracle import WIDTH, counts, layer, random_tensor, same_tensor

TWICE, OUTSIDE = "a site is there twice", "a site is outside of the spatial shape"
NO_BATCH = "a site is in a batch that there is not"


def fallbacks() -> dict[str, dict[str, int]]:
    rows = gsb.status().to_dict()["calls"]["spconv"]
    for row in rows.values():
        assert all(remedy_of(reason) is not None for reason in row["fallbacks"])
    return {name: row["fallbacks"] for name, row in rows.items() if row["fallbacks"]}


def submanifold(*args, **kwargs):
    return layer("SubMConv", 2, WIDTH, WIDTH, *(args or (3,)), **kwargs)


def strided(**kwargs):
    return layer("SparseConv", 2, WIDTH, WIDTH, 3, **kwargs)


def test_results_are_spconvs():
    x = random_tensor(2)
    twice = spconv.SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, 2)
    twice.indices[3] = twice.indices[5]
    no_batch = spconv.SparseConvTensor(x.features, x.indices, x.spatial_shape, 1)
    cases = [(submanifold(), twice), (SparseMaxPool(2, 3, 2, subm=True), x), (submanifold(), no_batch)]
    with gsb.enabled("spconv"):
        found = [module(tensor) for module, tensor in cases]
    for (module, tensor), result in zip(cases, found):
        same_tensor(result, module(tensor))
    assert fallbacks() == {
        "SubMConv": {TWICE: 1, NO_BATCH: 1},
        "SparseMaxPool": {"a pooling layer is submanifold": 1},
    }


@pytest.mark.parametrize(
    "sites, batches, reason, told",
    [
        ({3: (1, 2, 3), 7: (1, 2, 3)}, 2, TWICE, "coordinates 7 and 3 are equal, [1, 2, 3]: a site is there once"),
        ({9: (1, 0, 6)}, 2, OUTSIDE, "coordinates[9] = [1, 0, 6]: the coordinate along axis 1 must be in [0, 6)"),
        ({9: (3, 0, 0)}, 3, NO_BATCH, "coordinates[9] = [3, 0, 0]: the batch must be in [0, 3)"),
    ],
)
def test_the_site_at_fault_is_told(sites, batches, reason, told):
    indices = torch.cartesian_prod(torch.tensor([0]), torch.arange(5), torch.arange(2)).int()
    for row, site in sites.items():
        indices[row] = torch.tensor(site)
    x = spconv.SparseConvTensor(torch.randn(10, WIDTH), indices, [7, 6], batches)
    with gsb.enabled("spconv"):
        submanifold()(x)
    assert fallbacks() == {"SubMConv": {reason: 1}}
    assert gsb.status().rows[0].found[reason].startswith(told)


def timed():
    x = random_tensor(2)
    x.benchmark = True
    return x


def integers():
    x = random_tensor(2)
    return x.replace_feature(x.features.detach().int())


def parts():
    x = random_tensor(2)
    return x.features, x.indices, x.spatial_shape


def one_cell():
    return spconv.SparseConvTensor(torch.randn(1, WIDTH), torch.zeros(1, 3, dtype=torch.int32), [2, 2], 1)


def keyed(module):
    """What spconv makes of a layer whose key is "a"."""
    return module(random_tensor(2))


def inverse():
    return layer("SparseInverseConv", 2, WIDTH, WIDTH, 3, "a")


NO_SUCH = "the indice_key is that of no such layer"
CASES = {
    "a tensor": (submanifold, lambda: torch.randn(5, WIDTH), "the input is no SparseConvTensor"),
    "type": (submanifold, integers, "dtype int32"),
    "two types": (submanifold, lambda: random_tensor(2, torch.float64), "operands of two types or devices"),
    "times": (submanifold, timed, "spconv takes the time of its layers"),
    "width": (submanifold, lambda: random_tensor(2, width=3), "the shapes do not fit"),
    "no cells": (strided, one_cell, "the shapes do not fit"),
    "half a batch": (submanifold, lambda: spconv.SparseConvTensor(*parts(), 2.5), "the shapes do not fit"),
    "no key": (inverse, lambda: random_tensor(2), NO_SUCH),
    "submanifold key": (inverse, lambda: keyed(submanifold(indice_key="a")), NO_SUCH),
    "taken key": (lambda: strided(indice_key="a"), lambda: keyed(submanifold(indice_key="a")), NO_SUCH),
    "spconv's key": (
        inverse,
        lambda: keyed(strided(stride=2, indice_key="a")),
        "the indice_key is that of a layer which spconv ran",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons(name):
    module, x, reason = CASES[name]
    module, x = module(), x()

    def run():
        try:
            return module(x)
        except Exception as error:
            return type(error)

    with gsb.enabled("spconv"):
        found = run()
    wanted = run()
    if isinstance(wanted, type):
        assert found is wanted
    else:
        same_tensor(found, wanted)
    ((_, reasons),) = fallbacks().items()
    assert reasons == {reason: 1}


def test_what_quantised_layers_add_is_spconvs():
    module, x = submanifold(), random_tensor(2)
    with gsb.enabled("spconv"):
        found = module(x, x)
    same_tensor(found, module(x, x))
    assert fallbacks() == {"SubMConv": {"the layer is quantised, or adds another tensor": 1}}


def test_a_layer_of_a_user_is_ours_by_what_it_calls():
    class Scaled(SparseConvolution):
        def forward(self, x):
            return self._conv_forward(self.training, x, self.weight * 2, self.bias)

    class Own(SparseConvolution):
        def _conv_forward(self, training, x, *args, **kwargs):
            return x

    x = random_tensor(2)
    scaled, own = (kind(2, WIDTH, WIDTH, 3, subm=True) for kind in (Scaled, Own))
    with gsb.enabled("spconv"):
        found = scaled(x)
        assert own(x) is x
    assert counts() == {"SubMConv": 1}
    same_tensor(found, scaled(x))


def test_implicit_gemm_cannot_follow_on_our_map():
    first, second = submanifold(indice_key="a"), submanifold(indice_key="a")
    second.algo = ConvAlgo.MaskImplicitGemm  # the constructor of a build without CUDA refuses it
    x = random_tensor(2)
    with gsb.enabled("spconv"):
        y = first(x)
        second(y)  # on a kernel all algorithms are one
        with pytest.raises(RuntimeError, match="'a' is that of a layer which gnn_sparse_backend ran"):
            second(y.replace_feature(y.features.double()))


def test_transformations():
    module, x = submanifold(), random_tensor(2)
    with gsb.enabled("spconv"), torch.autograd.forward_ad.dual_level():
        module(x)
    assert fallbacks() == {"SubMConv": {"missing, subclass or traced tensor": 1}}
