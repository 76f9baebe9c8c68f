"""Models of ``torch_geometric.nn.models``, and a few steps of training of those that are only stacks of layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn as gnn
import torch_geometric.nn.models as models
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, MeanAggregator

from tests.coverage.pyg.graphs import (
    EDGES,
    NODES,
    RELATIONS,
    adjacency,
    batch,
    draw,
    isolated,
    loopless,
    sequential,
    symmetric,
    with_stand_ins,
)
from tests.coverage.report import Bound, Case, features

IN, HIDDEN, OUT, HEADS = 6, 6, 4, 2
X, W, E = features(NODES, IN), features(EDGES, seed=1).abs() + 0.5, features(EDGES, 5, seed=2)
SINGLE = (torch.float32,)
STEPS = 3

# Of torch_geometric.nn.models.
NO_MESSAGES = {
    **dict.fromkeys(
        (
            "MLP",
            "JumpingKnowledge",
            "HeteroJumpingKnowledge",
            "InnerProductDecoder",
            "GPSENodeEncoder",
            "ARLinkPredictor",
        ),
        "dense layers",
    ),
    **dict.fromkeys(("Node2Vec", "MetaPath2Vec"), "an embedding"),
    "MaskLabel": "an embedding",
    **dict.fromkeys(("to_captum_input", "captum_output_to_dicts"), "arranges tensors"),
}


def model(
    name: str,
    make: Callable[[], nn.Module],
    call: Callable = lambda m: m.layer(m.x, isolated()),
    note: str = "",
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32),
    **inputs: Tensor,
) -> Case:
    return Case(name, lambda: Bound(make(), **(inputs or {"x": X})), call, note, dtypes)


def trained(*arguments: Callable) -> Callable:
    """The losses of a few steps of training; the step of the case follows on them."""

    def call(m: nn.Module) -> tuple[Tensor, ...]:
        optimiser = torch.optim.SGD(m.layer.parameters(), lr=0.05, momentum=0.9)
        labels, losses = draw(OUT, NODES, 4), []
        for _ in range(STEPS):
            optimiser.zero_grad()
            out = m.layer(m.x.detach(), isolated(), *[argument(m) for argument in arguments])
            loss = nn.functional.cross_entropy(out, labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        optimiser.zero_grad()
        return m.layer(m.x, isolated(), *[argument(m) for argument in arguments]), torch.stack(losses)

    return call


def _stacks() -> list[Case]:
    degrees = torch.tensor([2, 1, 1, 2, 2, 3, 1])
    pna = dict(aggregators=["mean", "max", "std"], scalers=["identity", "amplification"], deg=degrees)
    kinds = {
        "GCN": (gnn.GCN, {}),
        "GraphSAGE": (gnn.GraphSAGE, {}),
        "GIN": (gnn.GIN, dict(norm="batch_norm")),
        "GAT": (gnn.GAT, dict(heads=HEADS, dropout=0.3)),
        "PNA": (gnn.PNA, pna),
        "EdgeCNN": (gnn.EdgeCNN, {}),
    }
    cases = [
        model(name, lambda kind=kind, more=more: kind(IN, HIDDEN, 2, OUT, **more), trained())
        for name, (kind, more) in kinds.items()
    ]
    return cases + [
        model(
            "GCN, edge weights",
            lambda: gnn.GCN(IN, HIDDEN, 2, OUT, jk="cat"),
            trained(lambda m: m.w.detach()),
            x=X,
            w=W,
        ),
        model(
            "GAT, second version, edge features",
            lambda: gnn.GAT(IN, HIDDEN, 2, OUT, v2=True, edge_dim=5, norm="layer"),
            lambda m: m.layer(m.x, isolated(), edge_attr=m.e),
            x=X,
            e=E,
        ),
        model(
            "GraphSAGE, max, jumping knowledge",
            lambda: gnn.GraphSAGE(IN, HIDDEN, 3, OUT, jk="lstm", aggr="max"),
            trained(),
        ),
        model(
            "GCN, matrix",
            lambda: gnn.GCN(IN, HIDDEN, 2, OUT),
            lambda m: m.layer(m.x, adjacency("csr", torch.ones(EDGES, dtype=m.x.dtype))),
        ),
        model(
            "GraphSAGE, trimmed",
            lambda: gnn.GraphSAGE(IN, HIDDEN, 2, OUT),
            lambda m: m.layer(
                m.x,
                torch.tensor([[1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 2, 2]]),
                num_sampled_nodes_per_hop=[1, 2, 9],
                num_sampled_edges_per_hop=[2, 4],
            ),
        ),
        model("DeepGCNLayer", lambda: gnn.DeepGCNLayer(gnn.GENConv(IN, IN), nn.LayerNorm(IN), nn.ReLU(), dropout=0.2)),
        model(
            "DeepGCNLayer, checkpointed",
            lambda: gnn.DeepGCNLayer(gnn.GCNConv(IN, IN), nn.LayerNorm(IN), nn.ReLU(), "dense", ckpt_grad=True),
        ),
        model("GroupAddRev", lambda: gnn.GroupAddRev(gnn.SAGEConv(3, 3), num_groups=2)),
        model("GraphUNet", lambda: gnn.GraphUNet(IN, HIDDEN, OUT, 2), lambda m: m.layer(m.x, symmetric(), batch())),
        model(
            "Sequential",
            lambda: sequential(
                "x, edge_index",
                [
                    (gnn.GCNConv(IN, HIDDEN), "x, edge_index -> x"),
                    nn.ReLU(),
                    (gnn.GATConv(HIDDEN, OUT), "x, edge_index -> x"),
                ],
            ),
        ),
        model("MetaLayer", _meta, lambda m: m.layer(m.x, isolated(), m.e, m.u, batch()), x=X, e=E, u=features(4, 2)),
    ]


def _meta() -> nn.Module:
    class Edge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2 * IN + 5 + 2, OUT)

        def forward(self, src: Tensor, dst: Tensor, edge_attr: Tensor, u: Tensor, rows: Tensor) -> Tensor:
            return self.layer(torch.cat([src, dst, edge_attr, u[rows]], 1)).relu()

    class Node(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, rows: Tensor) -> Tensor:
            received = torch.cat([x[edge_index[0]], edge_attr], 1)
            return torch.cat([x, gnn.aggr.MeanAggregation()(received, edge_index[1], dim_size=x.size(0))], 1)

    class Whole(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, rows: Tensor) -> Tensor:
            return torch.cat([u, gnn.global_max_pool(x, rows, 4)], 1)

    return gnn.MetaLayer(Edge(), Node(), Whole())


def _unsupervised() -> list[Case]:
    encoder = lambda: gnn.GCNConv(IN, HIDDEN)

    class Variational(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.deviation = encoder(), encoder()

        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
            return self.mean(x, edge_index), self.deviation(x, edge_index)

    def auto(m: nn.Module) -> Tensor:
        return m.layer.recon_loss(m.layer.encode(m.x, isolated()), isolated())

    def adversarial(m: nn.Module) -> tuple[Tensor, Tensor]:
        z = m.layer.encode(m.x, isolated())
        return m.layer.recon_loss(z, isolated()), m.layer.discriminator_loss(z)

    def infomax(m: nn.Module) -> Tensor:
        return m.layer.loss(*m.layer(m.x, isolated()))

    critic = lambda: nn.Linear(HIDDEN, 1)
    return [
        model("GAE", lambda: gnn.GAE(encoder()), auto),
        model("VGAE", lambda: gnn.VGAE(Variational()), lambda m: auto(m) + m.layer.kl_loss()),
        model("ARGA", lambda: gnn.ARGA(encoder(), critic()), adversarial),
        model("ARGVA", lambda: gnn.ARGVA(Variational(), critic()), adversarial),
        model(
            "DeepGraphInfomax",
            lambda: gnn.DeepGraphInfomax(
                HIDDEN, encoder(), lambda z, *_: z.mean(0).sigmoid(), lambda x, g: (x[torch.randperm(len(x))], g)
            ),
            infomax,
        ),
        model(
            "SignedGCN",
            lambda: gnn.SignedGCN(IN, HIDDEN, 2),
            lambda m: (lambda z: (z, m.layer.loss(z, isolated(), isolated().flip(0))))(
                m.layer(m.x, isolated(), isolated().flip(0))
            ),
        ),
        model(
            "LightGCN",
            lambda: gnn.LightGCN(NODES, HIDDEN, 2),
            lambda m: m.layer(symmetric(), draw(NODES, 10, 1).view(2, 5)),
        ),
    ]


def floating(parts) -> tuple[Tensor, ...]:
    return tuple(each for each in (parts if isinstance(parts, tuple) else (parts,)) if isinstance(each, Tensor))


def _propagating() -> list[Case]:
    """Models that propagate labels or features, or score nodes of a whole graph."""
    labels, mask = lambda: draw(OUT, NODES, 4), lambda: torch.arange(NODES) % 3 > 0

    def smooth(m: nn.Module) -> Tensor:
        soft = m.layer.correct(m.x.softmax(-1), labels()[mask()], mask(), isolated(), m.w)
        return m.layer.smooth(soft, labels()[mask()], mask(), isolated(), m.w)

    def temporal(m: nn.Module) -> tuple[Tensor, ...]:
        for time in range(2):
            m.layer.update_state(
                draw(NODES, 9, time), draw(NODES, 9, time + 5), torch.arange(9) + 10 * time, m.x[:9].detach()
            )
        return m.layer(torch.arange(NODES))[:1]

    def events(m: nn.Module) -> tuple[Tensor, ...]:
        steps = torch.tensor([0, 1, 1, 0, 2])
        rows = torch.tensor([0, 0, 0, 1, 1])
        data = Data(
            sub=draw(NODES, 2, 1),
            rel=draw(RELATIONS, 2, 2),
            obj=draw(NODES, 2, 3),
            h_sub=draw(NODES, 5, 4),
            h_sub_t=steps,
            h_sub_batch=rows,
            h_obj=draw(NODES, 5, 5),
            h_obj_t=steps,
            h_obj_batch=rows,
        )
        return m.layer(data)

    tgn = lambda aggregator: models.TGNMemory(NODES, IN, HIDDEN, 3, IdentityMessage(IN, HIDDEN, 3), aggregator)
    ppr = lambda: torch.eye(NODES).add(0.01).to_sparse_coo()
    return [
        model(
            "LabelPropagation",
            lambda: gnn.LabelPropagation(3, 0.6),
            lambda m: m.layer(labels(), isolated(), mask(), m.w),
            dtypes=SINGLE,
            w=W,
        ),
        model(
            "CorrectAndSmooth",
            lambda: gnn.CorrectAndSmooth(2, 0.8, 2, 0.7),
            smooth,
            dtypes=SINGLE,
            x=features(NODES, OUT),
            w=W,
        ),
        model("RECT_L", lambda: gnn.RECT_L(IN, HIDDEN), lambda m: m.layer(m.x, isolated(), m.w), x=X, w=W),
        model("PMLP", lambda: models.PMLP(IN, HIDDEN, OUT, 3), lambda m: m.layer.eval()(m.x, isolated())),
        model(
            "NeuralFingerprint",
            lambda: gnn.models.NeuralFingerprint(IN, HIDDEN, OUT, 2),
            lambda m: m.layer(m.x, isolated(), batch()),
        ),
        model(
            "AttentiveFP",
            lambda: gnn.AttentiveFP(IN, HIDDEN, OUT, 5, 2, 2),
            lambda m: m.layer(m.x, isolated(), m.e, batch()),
            x=X,
            e=E,
        ),
        model("LINKX", lambda: models.LINKX(NODES, IN, HIDDEN, OUT, 2, 2, 2)),
        model(
            "LINKX, edge weights",
            lambda: models.LINKX(NODES, IN, HIDDEN, OUT, 2),
            lambda m: m.layer(m.x, isolated(), m.w),
            x=X,
            w=W,
        ),
        model("TGNMemory, last", lambda: tgn(LastAggregator()), temporal, dtypes=SINGLE),
        model("TGNMemory, mean", lambda: tgn(MeanAggregator()), temporal, dtypes=SINGLE),
        model("RENet", lambda: models.RENet(NODES, RELATIONS, HIDDEN, 3), events),
        model(
            "LPFormer",
            lambda: models.LPFormer(IN, HIDDEN),
            lambda m: m.layer(draw(NODES, 10, 1).view(2, 5), m.x, symmetric(), ppr()),
            dtypes=SINGLE,
        ),
        model(
            "SGFormer",
            lambda: models.SGFormer(IN, HIDDEN, OUT),
            lambda m: m.layer(m.x, isolated(), batch()),
            dtypes=SINGLE,
        ),
        model(
            "Polynormer",
            lambda: models.Polynormer(IN, HIDDEN, OUT, 2, 1, local_attn=True),
            lambda m: m.layer(m.x, isolated(), batch()),
        ),
        model(
            "GPSE",
            lambda: models.GPSE(
                IN, OUT, HIDDEN, layers_mp=2, num_node_targets=OUT, num_graph_targets=3, multi_head_dim_inner=4
            ),
            _gpse,
        ),
    ]


def _gpse(m: nn.Module) -> tuple[Tensor, ...]:
    graphs = [Data(x=m.x, edge_index=loopless(), y=m.x[:, :4], y_graph=m.x[:1, :3], num_nodes=NODES)]
    return floating(m.layer(Batch.from_data_list(graphs)))


def _molecules() -> list[Case]:
    atoms = lambda: draw(5, NODES, 2) + 1
    on_molecules = with_stand_ins(lambda m: floating(m.layer(atoms(), m.pos, torch.zeros(NODES, dtype=torch.int64))))
    # its gradients are of order one then, as those of all cases: biases before normalisations have but their rounding
    tenth = lambda m: tuple(x / 10 for x in on_molecules(m))
    pos = features(NODES, 3)
    return [
        model(name, make, tenth if name == "GNNFF" else on_molecules, pos=pos, dtypes=dtypes)
        for name, make, dtypes in (
            ("SchNet", lambda: models.SchNet(HIDDEN, HIDDEN, 2, 5, 3.0), (torch.float64, torch.float32)),
            ("DimeNet", lambda: models.DimeNet(HIDDEN, OUT, 1, 4, 2, 3, 2.0), SINGLE),
            ("DimeNetPlusPlus", lambda: models.DimeNetPlusPlus(HIDDEN, OUT, 1, HIDDEN, 4, HIDDEN, 2, 3, 2.0), SINGLE),
            ("GNNFF", lambda: models.GNNFF(HIDDEN, HIDDEN, 1, 2.0), SINGLE),
            (
                "ViSNet",
                lambda: models.ViSNet(num_heads=2, num_layers=2, hidden_channels=HIDDEN, num_rbf=4, derivative=True),
                SINGLE,
            ),
            (
                "ViSNet, vertices",
                lambda: models.ViSNet(
                    num_heads=2, num_layers=1, hidden_channels=HIDDEN, num_rbf=4, vertex=True, vecnorm_type="max_min"
                ),
                SINGLE,
            ),
        )
    ]


CASES = _stacks() + _unsupervised() + _propagating() + _molecules()
