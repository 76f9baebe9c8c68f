"""What the layers of a model run on its data set, compiled and measured before the first epoch."""

from __future__ import annotations

import itertools

import gnn_sparse_backend as gsb
from gnn_sparse_backend.tuning.report import Report
from models.dataset import Dataset


def prepare(framework: str, dataset: Dataset, config, progress: bool = False) -> Report:
    """``gsb.precompile`` on the data set's graph, for the model that ``config`` describes, within
    ``config.precompile``.
    """
    nodes = dataset.num_nodes
    if config.model == "rgcn":
        graph = gsb.RelGraph.from_edge_index(
            dataset.edge_index, dataset.edge_type, (nodes, nodes), dataset.num_relations
        )
        widths = [config.hidden] * config.layers + [dataset.num_classes]
        bases = min(config.bases, dataset.num_relations)
        # DGL's layer is given 1 / the number of edges for each edge, PyG's takes the mean by itself
        op = {"dgl": "weighted_rgms_bases", "pyg": "rgms_bases_mean"}[framework]
        features = {op: [(i, o, bases) for i, o in itertools.pairwise(widths)]}
    else:
        graph = gsb.Graph.from_edge_index(dataset.edge_index, (nodes, nodes))
        widths = [dataset.features.shape[1]] + [config.hidden] * (config.layers - 1) + [dataset.num_classes]
        # DGL's layer multiplies first where that makes rows shorter
        features = {"mean": [min(pair) if framework == "dgl" else pair[0] for pair in itertools.pairwise(widths)]}
    return gsb.precompile(graph, features, budget=config.precompile, progress=progress)
