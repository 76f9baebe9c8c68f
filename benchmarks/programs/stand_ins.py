"""Data sets of the frameworks' examples, generated in their sizes: what they download is not here.

Numbers of graphs, nodes, edges and features are those of the data sets; what they are is random. What a program learns
is nothing, and how long a step takes is what it takes.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def install_pyg() -> None:
    """Put generated data in the place of PyG's data sets."""
    import torch_geometric.datasets as datasets
    from torch_geometric.data import Data, InMemoryDataset

    class Generated(InMemoryDataset):
        def __init__(self, graphs: list[Data], transform=None, pre_transform=None):
            super().__init__(None, transform)
            graphs = graphs if pre_transform is None else [pre_transform(g) for g in graphs]
            self.data, self.slices = self.collate(graphs)

    def bonds(nodes: int, edges: int) -> torch.Tensor:
        chain = torch.arange(nodes - 1)
        more = torch.randint(nodes, (2, max(edges - nodes + 1, 1)))
        found = torch.cat((torch.stack((chain, chain + 1)), more), 1)
        return torch.cat((found, found.flip(0)), 1)

    def small(count: int, nodes: int, edges: int, features: int, classes: int, **more: Any) -> list[Data]:
        graphs = []
        for _ in range(count):
            n = int(torch.randint(nodes // 2 + 1, nodes * 3 // 2 + 1, ()))
            index = bonds(n, edges * n // nodes)
            data = Data(x=torch.rand(n, features), edge_index=index, y=torch.randint(classes, (1,)))
            for name, make in more.items():
                data[name] = make(n, index.shape[1])
            graphs.append(data)
        return graphs

    def tudataset(root, name, transform=None, pre_transform=None, *_, **__):
        sizes = {"MUTAG": (188, 18, 20, 7, 2), "COLORS-3": (3500, 61, 91, 5, 11), "TRIANGLES": (3000, 21, 33, 1, 10)}
        graphs = small(*sizes.get(name, (1113, 39, 73, 3, 2)))
        return Generated(graphs, transform, pre_transform)

    def citation(root, name="Cora", *_, transform=None, pre_transform=None, **__):
        nodes, edges, features, classes = {
            "Cora": (2708, 5278, 1433, 7),
            "CiteSeer": (3327, 4552, 3703, 6),
            "PubMed": (19717, 44324, 500, 3),
        }.get(name, (2708, 5278, 1433, 7))
        index = torch.randint(nodes, (2, edges))
        index = torch.cat((index, index.flip(0)), 1)
        index = torch.unique(index[:, index[0] != index[1]], dim=1)
        data = Data(x=(torch.rand(nodes, features) < 0.01).float(), edge_index=index)
        data.y = torch.randint(classes, (nodes,))
        parts = torch.randperm(nodes)
        chosen = (("train", parts[: 20 * classes]), ("val", parts[200:700]), ("test", parts[700:1700]))
        for part, own in chosen:
            data[f"{part}_mask"] = torch.zeros(nodes, dtype=torch.bool).index_fill_(0, own, True)
        return Generated([data], transform, pre_transform)

    def upfd(root, name, feature, split="train", transform=None, *_, **__):
        return Generated(small({"train": 62, "val": 31, "test": 221}[split], 130, 130, 300, 2), transform)

    def ppi(root, split="train", transform=None, *_, **__):
        graphs = small({"train": 20, "val": 2, "test": 2}[split], 1000, 14000, 50, 2)
        for data in graphs:
            data.y = torch.randint(2, (data.num_nodes, 121)).float()
        return Generated(graphs, transform)

    def entities(root, name, *_, transform=None, **__):
        data = Data(edge_index=torch.randint(8285, (2, 58086)), num_nodes=8285, edge_type=torch.randint(90, (58086,)))
        data.train_idx, data.train_y = torch.arange(140), torch.randint(4, (140,))
        data.test_idx, data.test_y = torch.arange(140, 176), torch.randint(4, (36,))
        made = Generated([data], transform)
        type(made).num_relations = 90
        return made

    def qm9(root, transform=None, *_, **__):
        more = {"pos": lambda n, e: torch.randn(n, 3), "edge_attr": lambda n, e: torch.rand(e, 4)}
        graphs = small(4000, 18, 19, 11, 2, z=lambda n, e: torch.randint(1, 10, (n,)), **more)
        for data in graphs:
            data.y = torch.randn(1, 19)
        return Generated(graphs, transform)

    def superpixels(root, train=True, transform=None, *_, **__):
        return Generated(small(1000, 75, 700, 1, 10, pos=lambda n, e: torch.rand(n, 2)), transform)

    made = {
        "TUDataset": tudataset,
        "Planetoid": citation,
        "CitationFull": citation,
        "Amazon": citation,
        "Coauthor": citation,
        "UPFD": upfd,
        "PPI": ppi,
        "Entities": entities,
        "QM9": qm9,
        "MNISTSuperpixels": superpixels,
        "GNNBenchmarkDataset": functools.partial(tudataset),
    }
    for name, make in made.items():
        setattr(datasets, name, make)


def install_dgl() -> None:
    """Put generated data in the place of DGL's data sets."""
    import dgl
    from dgl.data import DGLDataset

    class Generated(DGLDataset):
        def __init__(self, graphs: list, labels=None, classes: int = 7, **more: Any):
            self.graphs, self.labels, self.num_classes = graphs, labels, classes
            for name, value in more.items():
                setattr(self, name, value)
            super().__init__("generated")

        def process(self):
            pass

        def __getitem__(self, at):
            return self.graphs[at] if self.labels is None else (self.graphs[at], self.labels[at])

        def __len__(self):
            return len(self.graphs)

    def citation(nodes: int, edges: int, features: int, classes: int, *_, transform=None, **__):
        source, destination = torch.randint(nodes, (2, edges))
        graph = dgl.to_bidirected(dgl.graph((source, destination), num_nodes=nodes))
        graph.ndata["feat"] = (torch.rand(nodes, features) < 0.01).float()
        graph.ndata["label"] = torch.randint(classes, (nodes,))
        parts = torch.randperm(nodes)
        for part, own in (("train", parts[: 20 * classes]), ("val", parts[200:700]), ("test", parts[700:1700])):
            graph.ndata[f"{part}_mask"] = torch.zeros(nodes, dtype=torch.bool).index_fill_(0, own, True)
        return Generated([graph if transform is None else transform(graph)], classes=classes, num_labels=classes)

    def small(count: int, nodes: int, edges: int, features: int, classes: int):
        graphs = []
        for _ in range(count):
            n = int(torch.randint(nodes // 2 + 1, nodes * 3 // 2 + 1, ()))
            source, destination = torch.randint(n, (2, edges * n // nodes))
            graph = dgl.graph((torch.cat((source, destination)), torch.cat((destination, source))), num_nodes=n)
            graph.ndata["feat"] = graph.ndata["attr"] = torch.rand(n, features)
            graphs.append(graph)
        labels = torch.randint(classes, (count,))
        more = {"dim_nfeats": features, "gclasses": classes, "num_labels": classes, "max_num_node": nodes * 3 // 2}
        return Generated(graphs, labels, classes, **more)

    def gin(name, *_, **__):
        return small({"MUTAG": 188}.get(name, 1113), 18, 20, 7, 2)

    def legacy(name, *_, **__):
        made = small(1113, 39, 73, 3, 2)
        made.statistics = lambda: (3, 2, 58)
        return made

    for name, size in {
        "CoraGraphDataset": (2708, 5278, 1433, 7),
        "CiteseerGraphDataset": (3327, 4552, 3703, 6),
        "PubmedGraphDataset": (19717, 44324, 500, 3),
    }.items():
        setattr(dgl.data, name, functools.partial(citation, *size))
    dgl.data.GINDataset, dgl.data.LegacyTUDataset, dgl.data.TUDataset = gin, legacy, legacy
