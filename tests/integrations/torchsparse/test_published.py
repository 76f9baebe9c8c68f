"""Published networks, unchanged, forward and backward against convolutions by a dictionary of coordinates.

``GSB_CHECKOUTS`` is a folder with checkouts of mit-han-lab's ``torchsparse`` and ``spvnas``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.integrations import torchsparse as ts
from gnn_sparse_backend.integrations.torchsparse.nn import convolution
from gnn_sparse_backend.ops.grouped.segment_reduce import segment_reduce
from gnn_sparse_backend.structures.segments import Segments

from . import oracle

CHECKOUTS = Path(os.environ.get("GSB_CHECKOUTS") or "absent")
SITES = 60


@pytest.fixture
def checkout() -> Iterator:
    """Imports of a checkout, with ``torchsparse`` given by us."""
    path, before = list(sys.path), set(sys.modules)

    def use(name: str, module: str) -> ModuleType:
        if not (CHECKOUTS / name).is_dir():
            pytest.skip(f"GSB_CHECKOUTS has no checkout of {name}")
        if name == "torchsparse":  # beside our module of that name
            folder = CHECKOUTS / name / module.replace(".", "/")
            spec = importlib.util.spec_from_file_location("published", folder / "__init__.py")
            sys.modules["published"] = made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
            return made
        sys.path.insert(0, str(CHECKOUTS / name))
        return importlib.import_module(module)

    with gsb.enabled("torchsparse"):
        yield use
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("core", "published", "torch_scatter"):
            del sys.modules[name]


def scene(batches: int = 2, side: int = 34) -> ts.SparseTensor:
    """Sites of a surface and beside it, in no order."""
    cells = torch.randint(0, side, (batches * SITES, 3))
    cells[::2, 2] = (cells[::2, 0] + cells[::2, 1]) // 2
    rows = torch.cat([torch.arange(batches).repeat(SITES)[:, None], cells], 1).unique(dim=0)
    rows = rows[torch.randperm(len(rows))].int()
    return ts.SparseTensor(torch.randn(len(rows), 4).double(), rows)


def results(model: torch.nn.Module, x: ts.SparseTensor, seed: int = 1) -> list[Tensor]:
    """Outputs of a network, and gradients of its input and parameters that it uses."""
    torch.manual_seed(seed)  # dropout
    given = ts.SparseTensor(x.feats.clone().requires_grad_(), x.coords.clone())
    out = model(given)
    outs = [getattr(y, "F", y) for y in (out if isinstance(out, list) else [out])]
    loss = sum((y * torch.cos(torch.arange(y.numel()).view_as(y).double())).sum() for y in outs)
    found = torch.autograd.grad(loss, [given.feats, *model.parameters()], allow_unused=True)
    return [*outs, *(g for g in found if g is not None)]


def check(model: torch.nn.Module, monkeypatch, layers: int) -> None:
    """The network over our layers is that over the oracle's, in float64."""
    model, x = model.double(), scene()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    reset_status()
    ours = results(model, x)
    rows = gsb.status().to_dict()["calls"]["torchsparse"]
    assert sum(row["ours"] for name, row in rows.items() if name.startswith("Conv3d")) == layers
    assert not any(row["fallbacks"] for row in rows.values())
    model.load_state_dict(state)
    monkeypatch.setattr(convolution, "conv3d", oracle.conv3d)
    theirs = results(model, x)
    assert len(ours) == len(theirs) > len(list(model.parameters())) // 2
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9 * (1 + other.abs().max().item()))


@pytest.mark.parametrize("name", ("minkunet.MinkUNet", "spvcnn.SPVCNN"))
def test_networks_of_spvnas(name, checkout, monkeypatch):
    """MinkUNet, and SPVCNN of points and voxels by turns, by hash tables of ``torchsparse.backend``."""

    def scatter_mean(src: Tensor, index: Tensor, dim: int = 0) -> Tensor:
        assert index.shape in (src.shape[:1], (src.shape[0], 1)) and dim == 0
        return segment_reduce(src, Segments.from_index(index.flatten(), int(index.max()) + 1), "mean")

    scatter = ModuleType("torch_scatter")
    scatter.scatter_mean = scatter_mean
    monkeypatch.setitem(sys.modules, "torch_scatter", scatter)
    module, _, network = name.partition(".")
    made = getattr(checkout("spvnas", f"core.models.semantic_kitti.{module}"), network)
    check(made(num_classes=5, cr=0.25, pres=1.0, vres=1.0), monkeypatch, 42)


@pytest.mark.parametrize("name", ("SparseResUNet42", "SparseResNet21D"))
def test_backbones_of_torchsparse(name, checkout, monkeypatch):
    """Theirs runs, and ours is the same network, whose states are theirs."""
    theirs = getattr(checkout("torchsparse", "torchsparse.backbones"), name)(in_channels=4, width_multiplier=0.25)
    ours = getattr(ts.backbones, name)(in_channels=4, width_multiplier=0.25)
    ours.load_state_dict(theirs.state_dict())
    x = scene()
    for one, other in zip(results(ours.double(), x), results(theirs.double(), x), strict=True):
        torch.testing.assert_close(one, other)
    check(theirs, monkeypatch, 42 if name == "SparseResUNet42" else 21)


def test_states_have_published_names_and_shapes():
    """A part of the state of torchsparse's SparseResUNet42, for anybody without a checkout."""
    state = {name: tuple(x.shape) for name, x in ts.backbones.SparseResUNet42().state_dict().items()}
    published = {
        "stem.0.kernel": (27, 4, 32),
        "stem.4.running_mean": (32,),
        "encoders.0.0.0.kernel": (8, 32, 32),
        "encoders.1.1.main.3.kernel": (27, 64, 64),
        "encoders.1.1.shortcut.0.kernel": (32, 64),
        "decoders.3.upsample.0.kernel": (8, 96, 96),
        "decoders.3.fuse.0.main.0.kernel": (27, 128, 96),
        "decoders.3.fuse.0.shortcut.1.weight": (96,),
    }
    assert {name: state.get(name) for name in published} == published
