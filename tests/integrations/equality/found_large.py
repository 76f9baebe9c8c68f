"""The programs of test_found.py on layers so large that the backend watches their linear layers."""

from __future__ import annotations

import dgl
import dgl.function as fn
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import functional as F

from tests.integrations.equality.pair import tried

NODES, WIDTH = 8200, 128  # more than 2**20 numbers
CONVOLUTIONS = {
    "GCN": lambda: pyg.GCNConv(WIDTH, 16),
    "SAGE": lambda: pyg.SAGEConv(WIDTH, 16, project=True),
    "GAT": lambda: pyg.GATConv(WIDTH, 16, heads=2),
}


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(NODES, WIDTH, generator=generator)
    return x, torch.randint(0, NODES, (2, 3 * NODES), generator=generator)


def rows(t: Tensor) -> Tensor:
    """What is compared of a tensor of many rows."""
    return t.detach()[:50]


ACTIVATIONS = {
    "relu": lambda h: F.relu(h, inplace=True),
    "leaky_relu": lambda h: F.leaky_relu(h, 0.1, inplace=True),
    "elu": lambda h: F.elu(h, inplace=True),
    "selu": lambda h: F.selu(h, inplace=True),
    "silu": lambda h: F.silu(h, inplace=True),
    "hardtanh": lambda h: F.hardtanh(h, inplace=True),
    "relu6": lambda h: F.relu6(h, inplace=True),
    "dropout": lambda h: F.dropout(h, 0.5, inplace=True),
    "aten": lambda h: torch.ops.aten.relu_(h),
    "script": lambda h: _script_relu(h),
    "foreach": lambda h: torch._foreach_mul_([h], 2.0),
    "set_": lambda h: h.data.set_(h.detach() * 2),
    "data": lambda h: h.data.mul_(2),
    "numpy": lambda h: h.detach().numpy().__imul__(2),
}


@torch.jit.script
def _script_relu(h: Tensor) -> Tensor:
    return torch.relu_(h)


class Activated(pyg.MessagePassing):
    """A layer with half of a product, and an activation in place of the whole product before the half is sent."""

    def __init__(self, name: str):
        super().__init__()
        self.linear, self.activation, self.raised = torch.nn.Linear(WIDTH, WIDTH), ACTIVATIONS[name], None

    def forward(self, x, edge_index):
        h = self.linear(x)
        g = h * 0.5
        self.raised = tried(lambda: self.activation(h) is None)
        return self.propagate(edge_index, x=g), h, g


def activated_in_place(name: str, gradients: bool) -> list:
    """All that such a layer gives, and its gradient."""
    x, edge_index = inputs()
    torch.manual_seed(1)
    layer = Activated(name)
    with torch.set_grad_enabled(gradients):
        out, h, g = layer(x, edge_index)
    found = [layer.raised, rows(out), rows(h), rows(g)]
    return [*found, tried(((out**2).sum() + h.sum()).backward), layer.linear.weight.grad] if gradients else found


def activated_in_scope(name: str) -> list:
    """The steps of such a layer in a scope of DGL's."""
    x, (source, destination) = inputs()
    g = dgl.graph((source, destination), num_nodes=NODES)
    with g.local_scope():
        h = x * 1.5
        g.ndata["x"] = h * 0.5
        raised = tried(lambda: ACTIVATIONS[name](h) is None)
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "o"))
        return [raised, rows(g.ndata["o"]), rows(g.ndata["x"]), rows(h)]


def moved_weights(name: str, way: str) -> list:
    """A convolution whose linear layers get their weights before their forward, and lose them after it."""
    x, edge_index = inputs()
    torch.manual_seed(1)
    convolution = CONVOLUTIONS[name]()
    for part in convolution.modules():
        if isinstance(part, (torch.nn.Linear, pyg.dense.linear.Linear)):
            host = part.weight.detach().clone()

            def before(module, arguments, host=host):
                if way == "freed":
                    module.weight.untyped_storage().resize_(host.numel() * host.element_size())
                with torch.no_grad():
                    module.weight.data.copy_(host)

            def after(module, arguments, out):
                if way == "freed":
                    module.weight.untyped_storage().resize_(0)
                elif way == "data":
                    module.weight.data.zero_()
                else:
                    with torch.no_grad():
                        module.weight.zero_()

            part.register_forward_pre_hook(before)
            part.register_forward_hook(after)
    with torch.no_grad():
        return [rows(convolution(x, edge_index))]


def forward_mode_of_unit() -> Tensor:
    """The forward-mode derivative of a gradient through a large rectified unit with dropout."""
    x = inputs()[0].requires_grad_()
    out = F.dropout(F.relu(x * 1.5), 0.5)

    def pull(cotangent):
        return torch.autograd.grad(out, x, cotangent, retain_graph=True)[0]

    value, tangent = torch.func.jvp(pull, (torch.ones(NODES, WIDTH),), (torch.full((NODES, WIDTH), 2.0),))
    return [rows(value), rows(tangent)]


def hook_on_unit() -> list:
    """Gradients between a large rectified unit and the dropout behind it."""
    x = inputs()[0].requires_grad_()
    unit = F.relu(x * 1.5)
    unit.register_hook(lambda grad: grad * 3)
    out = F.dropout(unit, 0.5)
    unit.retain_grad()
    found = torch.autograd.grad((out**2).sum(), [unit, x], retain_graph=True)
    (out**2).sum().backward()
    return [*map(rows, found), rows(unit.grad), rows(x.grad), type(found[0]).__name__]


SHARDED = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
import gnn_sparse_backend as gsb
from tests.integrations.equality.found_large import CONVOLUTIONS, inputs, rows

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
results = []
for on in (False, True):
    if on:
        gsb.enable("pyg")
    torch.manual_seed(1)
    x, edge_index = inputs()
    convolution = CONVOLUTIONS[sys.argv[1]]()
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    for part in list(convolution.modules())[1:]:
        if "Linear" in type(part).__name__:
            fully_shard(part, mesh=mesh, reshard_after_forward=True)
    out = convolution(x, edge_index)
    (out ** 2).sum().backward()
    results.append([rows(out)] + [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
                                 for p in convolution.parameters()])
dist.destroy_process_group()
for one, other in zip(*results):
    torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3 * one.abs().max().item())
"""
"""A program that shards the linear layers of a convolution, with the backend off and on."""
