"""Products that compiled programs add in place: where nobody else wants the addend, and nowhere else."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.config as inductor
from torch.fx.experimental.proxy_tensor import make_fx

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.traced.products import add_in_place

aten = torch.ops.aten


def operands(grad: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, requires_grad=grad) for shape in ((9, 6), (6, 6), (6,))]


def reread(x, w, bias):
    first = aten.mm(x, w)
    return aten.addmm(first, x, w) + first


PROGRAMS = {
    "a product": (lambda x, w, bias: aten.addmm(aten.mm(x, w), x, w), 1),
    "a chain": (lambda x, w, bias: aten.addmm(aten.addmm(aten.addmm(bias, x, w), x, w), x, w), 2),
    "ours": (lambda x, w, bias: aten.addmm(torch.ops.gsb.masked(x, (x > 0).byte(), 2.0, False), x, w), 1),
    "of a tuple": (lambda x, w, bias: aten.addmm(torch.ops.gsb.dropped_counted("", x, 0.0, 1, True)[0], x, w), 1),
    "wanted again": (reread, 0),
    "an argument": (lambda x, w, bias: aten.addmm(x, x, w), 0),
    "a view": (lambda x, w, bias: aten.addmm(aten.t(x.t()), x, w), 0),
    "a factor": (lambda x, w, bias: (lambda y: aten.addmm(y, y, w))(aten.mm(x, w)), 0),
    "a row": (lambda x, w, bias: aten.addmm(aten.mm(x[:1], w), x, w), 0),
    "other strides": (
        lambda x, w, bias: aten.addmm(torch.ops.gsb.masked(x.t(), x.t().byte(), 2.0, False).t(), x, w),
        0,
    ),
    "a multiple": (lambda x, w, bias: aten.addmm(aten.mm(x, w), x, w, beta=0.5), 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("sizes", ["fake", "symbolic"])
def test_what_is_added_in_place(name, sizes):
    program, count = PROGRAMS[name]
    given = operands()
    before = [x.clone() for x in given]
    graph = make_fx(program, tracing_mode=sizes)(*given).graph
    add_in_place(graph)
    graph.lint()
    assert sum(node.target == torch.ops.gsb.add_product.default for node in graph.nodes) == count
    found = torch.fx.GraphModule(torch.nn.Module(), graph)(*given)
    torch.testing.assert_close(found, program(*given))
    assert all(torch.equal(x, y) for x, y in zip(given, before))


def test_inductors_own_products_stay():
    graph = make_fx(PROGRAMS["a product"][0], tracing_mode="fake")(*operands()).graph
    with inductor.patch(max_autotune=True):
        add_in_place(graph)
    assert any(node.target == aten.addmm.default for node in graph.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_training_by_inductor(dynamic):
    def program(x, w, bias):
        y = torch.nn.functional.linear(x, w, bias) + x @ w
        return torch.relu(y + y.sigmoid() @ w) + y

    found = []
    gsb.enable("pyg")
    try:
        for run in (program, torch.compile(program, dynamic=dynamic)):
            given = operands(grad=True)
            result = run(*given)
            found.append([result, *torch.autograd.grad(result.square().sum(), given)])
    finally:
        gsb.disable("pyg")
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
