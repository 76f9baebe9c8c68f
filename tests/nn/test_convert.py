"""Weights of other libraries: the same outputs."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch

from gnn_sparse_backend import nn

from .record_spconv import RECORD, SHAPE


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORD.read_text())


def layers() -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict(
        {
            "submanifold": nn.SubMConv(2, 4, 3),
            "down": nn.SparseConv(4, 3, (3, 2, 1), (2, 2, 1), padding=(1, 0, 0)),
            "inverse": nn.SparseInverseConv(3, 2, (3, 2, 1)),
        }
    )


@pytest.mark.parametrize("layout", nn.convert.LAYOUTS)
def test_outputs_of_spconv(recorded, layout):
    """Of spconv 2.3 on the CPU, with its ``ConvAlgo.Native``."""
    state = {name: torch.tensor(values) for name, values in recorded["state"].items()}
    if layout == "RSCK":
        state = {name: x.movedim(0, -1) if x.dim() == 5 else x for name, x in state.items()}
    model = layers()
    model.load_state_dict(nn.convert.from_spconv(state, model, layout))
    x = nn.SparseTensor(
        torch.tensor(recorded["features"]), torch.tensor(recorded["coordinates"]), spatial_shape=SHAPE, batch_size=2
    )
    for name, layer in model.items():
        x = layer(x)
        wanted = recorded["results"][name]
        order = {tuple(row): number for number, row in enumerate(wanted["coordinates"])}
        assert len(order) == len(x)
        theirs = torch.tensor(wanted["features"])[[order[tuple(row)] for row in x.coordinates.tolist()]]
        torch.testing.assert_close(x.features, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", (nn.SubMConv, nn.SparseConv, partial(nn.SparseConvTranspose, generative=True)))
def test_pointwise_layers_of_spconv_view_their_weight(make):
    """What spconv 2 has of it in ``SparseConvolutionBase._conv_forward``: ``features @ weight.view(c_in, c_out)``."""
    given = torch.arange(1.0, 7.0).reshape(3, 1, 1, 2)  # (c_out, 1, 1, c_in)
    x = nn.SparseTensor(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0, 0, 0], [0, 1, 2]]))
    for layer, view, wanted in (
        (make(2, 3, 1, bias=False, dim=2), True, given.view(2, 3)),
        (make(2, 3, 1, bias=False, dim=2), False, given.flatten(1).t()),
        (nn.SparseConv(2, 3, 1, stride=(1, 2), bias=False, dim=2), True, given.flatten(1).t()),  # none of these
    ):
        layer.load_state_dict(nn.convert.from_spconv({"weight": given}, layer, view_pointwise=view))
        torch.testing.assert_close(layer(x).features, wanted)


@pytest.mark.parametrize("kernel", ((3, 3, 3), (1, 3, 5), (2, 2, 2), (3, 2, 1), 1))
def test_outputs_in_the_order_of_torchsparse(kernel):
    """Offsets as torchsparse lists them: for x of the innermost loop if their number is odd, else for z."""
    torch.manual_seed(0)
    x = nn.SparseTensor(torch.randn(20, 2), torch.randint(0, 4, (90, 4)).clamp(max=3).unique(dim=0)[:20])
    model = torch.nn.Sequential(nn.SubMConv(2, 3, kernel), nn.BatchNorm(3)).eval()
    sizes = model[0].kernel_size
    axes = [range(-((n - 1) // 2), n // 2 + 1) for n in sizes]
    offsets = [(a, b, c) for a in axes[0] for b in axes[1] for c in axes[2]]
    if len(offsets) % 2:
        offsets = [(a, b, c) for c in axes[2] for b in axes[1] for a in axes[0]]
    weights = torch.randn(len(offsets), 2, 3)
    wanted = model[0].bias.detach().expand(20, -1).clone()
    numbers = {tuple(row): number for number, row in enumerate(x.coordinates.tolist())}
    for offset, weight in zip(offsets, weights):
        for out, (batch, *at) in enumerate(x.coordinates.tolist()):
            site = (batch, *(a + o for a, o in zip(at, offset)))
            if site in numbers:
                wanted[out] += x.features[numbers[site]] @ weight
    state = dict(model.state_dict())
    del state["0.weight"]
    state["0.kernel"] = weights[0] if kernel == 1 else weights
    model.load_state_dict(nn.convert.from_torchsparse(state, model))
    torch.testing.assert_close(model[0](x).features, wanted, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_quoted(recorded):
    state = {name: torch.tensor(values) for name, values in recorded["state"].items()}
    with pytest.raises(ValueError, match=r"down.weight of .*expected shape \(3, 2, 1, 4, 3\), got \(3, 3, 2, 1, 4\)"):
        nn.convert.from_spconv({**state, "submanifold.weight": torch.zeros(3, 3, 3, 2, 4)}, layers(), "RSCK")
    del state["down.weight"]
    with pytest.raises(KeyError, match="down.weight is missing"):
        nn.convert.from_spconv(state, layers())
    with pytest.raises(KeyError, match="submanifold.kernel is missing"):
        nn.convert.from_torchsparse(state, layers())
    with pytest.raises(ValueError, match="got 'KCRS'"):
        nn.convert.from_spconv(state, layers(), "KCRS")
