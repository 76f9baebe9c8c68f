"""Convolutions: spconv's own results, and the gradients of dense ones."""

import pytest
import spconv.pytorch as spconv
import torch
from cumm import tensorview
from spconv.pytorch.conv import SparseConvolution

import gnn_sparse_backend as gsb

from .oracle import WIDTH, counts, dense_conv, layer, random_tensor, same, same_tensor

LAYERS = {
    "submanifold": ("SubMConv", dict(kernel_size=3)),
    "submanifold_dilated": ("SubMConv", dict(kernel_size=3, dilation=2, bias=False, stride=2, padding=1)),
    "strided": ("SparseConv", dict(kernel_size=3, stride=2, padding=1)),
    "even": ("SparseConv", dict(kernel_size=2, stride=2, bias=False)),
    "dilated": ("SparseConv", dict(kernel_size=3, padding=1, dilation=2)),
    "transposed": ("SparseConvTranspose", dict(kernel_size=3, stride=2, padding=1)),
    "transposed_dilated": ("SparseConvTranspose", dict(kernel_size=2, stride=2, dilation=2, bias=False)),
}
DIMS = [pytest.param(dim, marks=pytest.mark.exhaustive if dim in (1, 4) else ()) for dim in (1, 2, 3, 4)]


EVEN = {
    "submanifold_even": ("SubMConv", dict(kernel_size=2, dilation=2)),
    "submanifold_mixed": ("SubMConv", dict(kernel_size=[4, 1, 3, 2], bias=False)),
}
"""spconv itself has none of these."""


def made(name: str, dim: int, dtype=torch.float32):
    kind, arguments = (LAYERS | EVEN)[name]
    if isinstance(arguments["kernel_size"], list):
        arguments = arguments | {"kernel_size": arguments["kernel_size"][:dim]}
    return layer(kind, dim, WIDTH, WIDTH, **arguments, dtype=dtype), kind


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", LAYERS)
def test_forward_is_spconvs(name, dim):
    module, kind = made(name, dim)
    x = random_tensor(dim)
    with gsb.enabled("spconv"):
        found = module(x)
    assert counts() == {kind: 1}
    same_tensor(found, module(x))
    assert counts() == {kind: 1}, "what runs after disabling is not counted"


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", LAYERS | EVEN)
def test_gradients_are_those_of_a_dense_convolution(name, dim):
    module, _ = made(name, dim, torch.float64)
    x = random_tensor(dim, torch.float64)
    with gsb.enabled("spconv"):
        out = module(x)
    wanted = dense_conv(x.features, x, module, out)
    same(out.features, wanted, torch.float64)
    cotangent, operands = torch.randn_like(wanted), [x.features, *module.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(out.features, operands, cotangent), torch.autograd.grad(wanted, operands, cotangent)
    ):
        same(ours, theirs, torch.float64)


@pytest.mark.parametrize("dim", DIMS)
def test_inverse_returns_to_the_sites_of_its_key(dim):
    down = layer("SparseConv", dim, WIDTH, WIDTH, 3, 2, 1, indice_key="down", dtype=torch.float64)
    up = layer("SparseInverseConv", dim, WIDTH, WIDTH, 3, "down", dtype=torch.float64)
    x = random_tensor(dim, torch.float64)
    with gsb.enabled("spconv"):
        middle = down(x)
        out = up(middle)
    assert counts() == {"SparseConv": 1, "SparseInverseConv": 1}
    same_tensor(out, up(down(x)))
    assert out.indices is x.indices, "and their order"
    # the dense layer that goes back the same way
    back = layer("SparseConvTranspose", dim, WIDTH, WIDTH, 3, 2, 1, dtype=torch.float64)
    back.weight, back.bias = up.weight, up.bias
    wanted = dense_conv(middle.features, middle, back, out)
    cotangent = torch.randn_like(wanted)
    operands = [middle.features, *up.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(out.features, operands, cotangent), torch.autograd.grad(wanted, operands, cotangent)
    ):
        same(ours, theirs, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_types_of_spconv(dtype):
    module, x = layer("SubMConv", 2, WIDTH, WIDTH, 3, dtype=dtype), random_tensor(2, dtype)
    with gsb.enabled("spconv"):
        found = module(x)
    same_tensor(found, module(x))


def test_bfloat16_and_autocast():
    module, x = layer("SubMConv", 2, WIDTH, WIDTH, 3), random_tensor(2)
    wanted = module(x).features
    with gsb.enabled("spconv"):
        half = module.bfloat16()(x.replace_feature(x.features.bfloat16())).features
        with torch.autocast("cpu", torch.bfloat16):
            cast = module.float()(x).features
    assert half.dtype is cast.dtype is torch.bfloat16
    same(half, wanted, torch.bfloat16)
    same(cast, wanted, torch.bfloat16)
    assert counts() == {"SubMConv": 2}


def test_layers_of_one_key_share_a_map():
    first, second = (layer("SubMConv", 2, WIDTH, WIDTH, 3, indice_key="a") for _ in range(2))
    x = random_tensor(2)
    with gsb.enabled("spconv"):
        y = first(x)
        shared = y.indice_dict["a"]
        z = second(y.replace_feature(torch.relu(y.features)))
        assert z.indice_dict == {"a": shared} and not x.indice_dict
        assert z.indices is y.indices is x.indices
        other = layer("SubMConv", 2, WIDTH, WIDTH, 3, indice_key="b")(z)
        assert other.indice_dict["b"].kernel_map is shared.kernel_map, "as have the same sites without a key"
        for wrong, message in (
            (layer("SubMConv", 2, WIDTH, WIDTH, 5, indice_key="a"), "same kernel size"),
            (layer("SubMConv", 2, WIDTH, WIDTH, 3, dilation=2, indice_key="a"), "same dilation"),
        ):
            with pytest.raises(ValueError, match=message):
                wrong(z)
    same_tensor(z, second(first(x).replace_feature(torch.relu(first(x).features))))


@pytest.mark.parametrize("kind, key", [("SubMConv", "a"), ("SparseConv", "b")])
def test_spconv_goes_on_with_our_map(kind, key):
    """Pairs in spconv's form, for layers that it runs itself after ours."""
    x = random_tensor(3)
    first = layer(kind, 3, WIDTH, WIDTH, 3, padding=1, indice_key=key)
    second = layer("SubMConv" if kind == "SubMConv" else "SparseInverseConv", 3, WIDTH, WIDTH, 3, indice_key=key)
    with gsb.enabled("spconv"):
        wanted = second(first(x))
        y = first(x)
    same_tensor(second(y), wanted)
    assert y.indice_dict[key].indice_pairs.shape == (2, 27, len(x.indices))


def test_results_are_in_ascending_order_and_of_their_own():
    module, x = layer("SparseConv", 2, WIDTH, WIDTH, 3, 2, 1), random_tensor(2)
    with gsb.enabled("spconv"):
        first, second = module(x), module(x)
        assert first.indices.tolist() == sorted(first.indices.tolist())
        first.indices.zero_()  # which is the user's to do
        assert torch.equal(module(x).indices, second.indices)
        x.indices[:, 0] = 1 - x.indices[:, 0]  # sites change in place
        changed = module(x)
    same_tensor(changed, module(x))
    assert not torch.equal(changed.indices, second.indices)


def test_inference_and_fused_activations():
    relu, leaky = tensorview.gemm.Activation.ReLU, tensorview.gemm.Activation.LeakyReLU
    for act, function in ((relu, torch.relu), (leaky, lambda y: torch.nn.functional.leaky_relu(y, 0.25))):
        module = SparseConvolution(2, WIDTH, WIDTH, 3, 2, 1, act_type=act, act_alpha=0.25)
        x = random_tensor(2)
        with gsb.enabled("spconv"), torch.inference_mode():
            found = module.eval()(x)
            again = module(module(x)) if act is relu else None
        module.act_type = tensorview.gemm.Activation.None_
        wanted = module.train()(x)  # spconv has neither bias nor activation in inference on the CPU
        same_tensor(found, wanted.replace_feature(function(wanted.features)))
        if again is not None:
            twice = module(wanted.replace_feature(torch.relu(wanted.features)))
            same_tensor(again, twice.replace_feature(torch.relu(twice.features)))


def test_the_most_voxels_are_recorded():
    module, x = layer("SparseConv", 2, WIDTH, WIDTH, 3, 2, record_voxel_count=True), random_tensor(2)
    few = spconv.SparseConvTensor(x.features[:3], x.indices[:3], x.spatial_shape, 2)
    module(x)
    wanted = module.get_max_num_voxels().clone()
    module.get_max_num_voxels().zero_()
    with gsb.enabled("spconv"):
        module(x)
        module(few)
    assert torch.equal(module.get_max_num_voxels(), wanted) and counts() == {"SparseConv": 2}


def test_one_offset_is_a_dense_product():
    module, x = layer("SubMConv", 2, WIDTH, 3, 1), random_tensor(2)
    with gsb.enabled("spconv"):
        found = module(x)
    assert torch.equal(found.features, module(x).features) and counts() == {}


def test_without_sites():
    module = layer("SparseConv", 2, WIDTH, WIDTH, 3, 2, 1)
    x = random_tensor(2, count=0)
    with gsb.enabled("spconv"):
        found = module(x)
    assert found.features.shape == (0, WIDTH) and found.indices.shape == (0, 3) and found.spatial_shape == [4, 3]
    found.features.sum().backward()
    assert not module.weight.grad.any()
