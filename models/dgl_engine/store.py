"""The store: a generated graph cut by DGL, and its features in the parts: ``python -m models.dgl_engine.store JOB``."""

from __future__ import annotations

import sys

import dgl
import numpy as np
import torch

from models import data, generated, relational_data
from models.dgl_engine.job import NAME, Job


def graph_of(job: Job) -> dgl.DGLGraph:
    """Features ``x``, labels ``y`` and the mask ``train`` of nodes; for RGCN one edge type for each relation."""
    load = relational_data.load if job.model == "rgcn" else data.load
    dataset = load("generated", "dgl", nodes=job.nodes, edges=job.edges, seed=job.seed)
    x = dataset.features
    if job.model == "rgcn":
        ends = {
            ("node", f"relation{relation}", "node"): tuple(dataset.edge_index[:, dataset.edge_type == relation])
            for relation in range(dataset.num_relations)
        }
        graph = dgl.heterograph(ends, {"node": dataset.num_nodes})
        x = torch.as_tensor(generated.features(dataset.labels.numpy(), np.random.default_rng([job.seed, 2])))
    else:
        graph = dgl.graph(tuple(dataset.edge_index), num_nodes=dataset.num_nodes)
    graph.ndata["x"], graph.ndata["y"] = x.float(), dataset.labels
    graph.ndata["train"] = dataset.train & (dataset.labels >= 0)
    return graph


def main() -> None:
    job = Job.read(sys.argv[1])
    dgl.seed(job.seed)
    torch.manual_seed(job.seed)
    graph = graph_of(job)
    dgl.distributed.partition_graph(graph, NAME, job.machines, str(job.path / "parts"), part_method=job.method)


if __name__ == "__main__":
    main()
