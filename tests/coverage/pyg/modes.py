"""Layers of PyG under what PyTorch and PyG put around them: scripts, compilers, autocast, checkpoints, explainers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch, Data
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    DummyExplainer,
    Explainer,
    GNNExplainer,
    GraphMaskExplainer,
    PGExplainer,
)

from tests.coverage.pyg.graphs import EDGES, NODES, isolated, loopless, sequential, square
from tests.coverage.report import Bound, Case, features

IN, OUT, HEADS = 6, 4, 2
X, W = features(NODES, IN), features(EDGES, seed=1).abs() + 0.5
SINGLE = (torch.float32,)


def case(
    name: str,
    make: Callable[[], nn.Module],
    call: Callable,
    note: str = "",
    dtypes: tuple[torch.dtype, ...] = SINGLE,
    **inputs: Tensor,
) -> Case:
    return Case(name, lambda: Bound(make(), **(inputs or {"x": X})), call, note, dtypes)


LAYERS = {
    "GCNConv": lambda: gnn.GCNConv(IN, OUT),
    "SAGEConv": lambda: gnn.SAGEConv(IN, OUT),
    "SAGEConv, max": lambda: gnn.SAGEConv(IN, OUT, "max"),
    "GATConv": lambda: gnn.GATConv(IN, OUT, HEADS),
    "GINConv": lambda: gnn.GINConv(nn.Linear(IN, OUT)),
    "TransformerConv": lambda: gnn.TransformerConv(IN, OUT, HEADS),
}


class Called(nn.Module):
    """A layer with the arguments that TorchScript is to compile it for."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index)


def plain(m: nn.Module) -> Tensor:
    return m.layer(m.x, isolated())


def compiled(backend: str) -> Callable:
    def call(m: nn.Module) -> Tensor:
        torch._dynamo.reset()
        return torch.compile(m.layer, backend=backend)(m.x, isolated())

    return call


def traced(m: nn.Module) -> Tensor:
    """Traced on one graph, called on another."""
    trace = torch.jit.trace(m.layer, (m.x.detach(), loopless()), check_trace=False)
    return trace(m.x, isolated())


def higher(m: nn.Module) -> tuple[Tensor, Tensor]:
    """A penalty on the gradient: the backward pass is differentiated again."""
    out = m.layer(m.x, isolated())
    (gradient,) = torch.autograd.grad(out.square().sum(), m.x, create_graph=True)
    return out, gradient


def accumulated(m: nn.Module) -> Tensor:
    for part in (isolated(), loopless()):
        m.layer(m.x, part).square().sum().backward()
    return m.layer(m.x, square())


def _around() -> list[Case]:
    cases = []
    for name, make in LAYERS.items():
        cases += [
            case(f"checkpoint, {name}", make, lambda m: checkpoint(m.layer, m.x, isolated(), use_reentrant=False)),
            case(f"second derivative, {name}", make, higher, dtypes=(torch.float64,)),
        ]
    cases += [
        case(
            f"torch.jit.script, {name}",
            lambda name=name: torch.jit.script(Called(LAYERS[name]())),
            plain,
            "compiled by TorchScript",
        )
        for name in LAYERS
        if name != "GATConv"
    ]  # which TorchScript refuses
    cases += [
        case(f"torch.compile, {backend}, {name}", LAYERS[name], compiled(backend), "compiled by torch.compile")
        for backend, name in (("eager", "SAGEConv"), ("aot_eager", "GCNConv"), ("aot_eager", "GATConv"))
    ]
    return cases + [
        case("torch.jit.trace, SAGEConv", LAYERS["SAGEConv"], traced),
        case(
            "torch.jit.script, model",
            lambda: torch.jit.script(gnn.GraphSAGE(IN, IN, 2, OUT)),
            plain,
            "compiled by TorchScript",
        ),
        case("gradients accumulated", LAYERS["GATConv"], accumulated),
        case(
            "reentrant checkpoint",
            LAYERS["GCNConv"],
            lambda m: checkpoint(m.layer, m.x, isolated(), use_reentrant=True),
        ),
        case("inference mode", LAYERS["SAGEConv"], lambda m: in_mode(torch.inference_mode, m), "no gradient"),
        case("no_grad", LAYERS["GATConv"], lambda m: in_mode(torch.no_grad, m), "no gradient"),
        case(
            "torch.func.grad",
            LAYERS["GCNConv"],
            lambda m: torch.func.grad(lambda x: m.layer(x, isolated()).square().sum())(m.x),
        ),
        case(
            "torch.func.functional_call",
            LAYERS["SAGEConv"],
            lambda m: torch.func.functional_call(
                m.layer, {key: 2 * value for key, value in m.layer.named_parameters()}, (m.x, isolated())
            ),
        ),
        case("torch.func.vmap", lambda: gnn.SimpleConv("sum"), mapped),
        case("weights normalised by PyTorch", lambda: normalised(gnn.SAGEConv(IN, OUT)), plain),
        case("Batch", LAYERS["GCNConv"], batched),
        case("deterministic algorithms", LAYERS["GATConv"], deterministic),
        case("save_on_cpu", LAYERS["GATConv"], offloaded),
        case("half of it frozen", LAYERS["SAGEConv"], frozen),
        case("bfloat16", lambda: gnn.SimpleConv("max"), lambda m: m.layer(m.x.bfloat16(), isolated()).float()),
        case("hooks of modules", lambda: gnn.SAGEConv(IN, OUT), module_hooks),
    ]


def mapped(m: nn.Module) -> Tensor:
    edges = isolated()
    return torch.vmap(lambda x: m.layer(x, edges))(torch.stack([m.x, 2 * m.x]))


def in_mode(mode: Callable, m: nn.Module) -> Tensor:
    with mode():
        return m.layer(m.x, isolated())


def normalised(layer: nn.Module) -> nn.Module:
    nn.utils.parametrizations.spectral_norm(layer.lin_l)
    return layer


def batched(m: nn.Module) -> Tensor:
    graphs = [
        Data(x=m.x[:4], edge_index=torch.tensor([[0, 1, 3], [1, 1, 0]])),
        Data(x=m.x[4:5], edge_index=square()[:, :0]),
        Data(x=m.x[5:], edge_index=torch.tensor([[0, 1], [2, 2]])),
    ]
    together = Batch.from_data_list(graphs)
    return gnn.global_mean_pool(m.layer(together.x, together.edge_index), together.batch)


def deterministic(m: nn.Module) -> Tensor:
    torch.use_deterministic_algorithms(True)
    try:
        return m.layer(m.x, isolated())
    finally:
        torch.use_deterministic_algorithms(False)


def offloaded(m: nn.Module) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return m.layer(m.x, isolated())


def frozen(m: nn.Module) -> Tensor:
    for parameter in m.layer.lin_l.parameters():
        parameter.requires_grad_(False)
    return m.layer(m.x.detach(), isolated())


def module_hooks(m: nn.Module) -> tuple[Tensor, ...]:
    seen = []
    m.layer.register_forward_hook(lambda module, inputs, out: seen.append(out.detach()))
    m.layer.register_full_backward_hook(
        lambda module, grad_in, grad_out: tuple(None if each is None else 3 * each for each in grad_in)
    )
    return (m.layer(m.x, isolated()), *seen)


# --- explainers ----------------------------------------------------------------------------------------------------


class Stack(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        more = () if edge_weight is None else (edge_weight,)
        return self.second(self.first(x, edge_index, *more).relu(), edge_index, *more)


def stack() -> nn.Module:
    return Stack(gnn.GCNConv(IN, OUT), gnn.SAGEConv(OUT, OUT))


def attention() -> nn.Module:
    return Stack(gnn.GATConv(IN, OUT, HEADS), gnn.TransformerConv(HEADS * OUT, OUT))


def explained(algorithm: Callable, kind: str = "model", **masks) -> Callable:
    def call(m: nn.Module) -> tuple[Tensor, ...]:
        explainer = Explainer(
            m.layer,
            algorithm(),
            explanation_type=kind,
            model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"),
            **masks,
        )
        target = None if kind == "model" else torch.arange(NODES) % OUT
        if isinstance(explainer.algorithm, PGExplainer):
            for epoch in range(2):
                explainer.algorithm.train(epoch, m.layer, m.x.detach(), isolated(), target=target, index=3)
        found = explainer(m.x.detach(), isolated(), target=target, index=3)
        after = m.layer(m.x, isolated())  # the layer is as before when the explanation is over
        return (after, *(each for key in ("node_mask", "edge_mask") if (each := found.get(key)) is not None))

    return call


def _explainers() -> list[Case]:
    both = dict(node_mask_type="attributes", edge_mask_type="object")
    gnn_explainer = lambda: GNNExplainer(epochs=3)
    return [
        case("GNNExplainer", stack, explained(gnn_explainer, **both)),
        case("GNNExplainer, attention", attention, explained(gnn_explainer, edge_mask_type="object")),
        case("GNNExplainer, phenomenon", stack, explained(gnn_explainer, "phenomenon", **both)),
        case("PGExplainer", stack, explained(lambda: PGExplainer(epochs=2), "phenomenon", edge_mask_type="object")),
        case("AttentionExplainer", attention, explained(AttentionExplainer, edge_mask_type="object")),
        case(
            "GraphMaskExplainer",
            lambda: Stack(gnn.GCNConv(IN, IN), gnn.GCNConv(IN, IN)),
            explained(lambda: GraphMaskExplainer(2, epochs=2, log=False), **both),
        ),
        case("DummyExplainer", stack, explained(DummyExplainer, **both)),
        *(
            [
                case(
                    "CaptumExplainer",
                    stack,
                    explained(lambda: CaptumExplainer("IntegratedGradients", n_steps=3), **both),
                )
            ]
            if captum()
            else []
        ),
        case(
            "PRBCDAttack",
            lambda: sequential(
                "x, edge_index, edge_weight", [(gnn.GCNConv(IN, OUT), "x, edge_index, edge_weight -> x")]
            ),
            attacked,
        ),
    ]


def attacked(m: nn.Module) -> tuple[Tensor, Tensor]:
    from torch_geometric.contrib.nn import PRBCDAttack  # which warns that it is experimental

    attack = PRBCDAttack(m.layer, block_size=20, epochs=3, epochs_resampling=2, log=False, is_undirected=False)
    edges, flips = attack.attack(m.x.detach(), loopless(), torch.arange(NODES) % OUT, budget=3)
    return m.layer(m.x, edges, torch.ones(edges.shape[1])), flips


def captum() -> bool:
    try:
        import captum  # noqa: F401
    except ImportError:
        return False
    return True


CASES = _around() + _explainers()
