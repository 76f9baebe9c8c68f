"""``gsb.distributed.wrap``: a model of DGL's or PyG's layers on a part of a graph."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..ops.core.partitioned import check_part

_PYG, _DGL = "torch_geometric.nn.conv", "dgl.nn.pytorch.conv"


def wrap(model: nn.Module, graph) -> nn.Module:
    """The model on a part: before each of its DGL or PyG layers the halo of the layer's input is fetched, and gradients
    of its parameters are averaged by ``DistributedDataParallel``.

    It is called as before, with features of this process's nodes, and the ``DistGraph`` in the place of DGL's graph, or
    of PyG's ``edge_index``; relations of edges are ``graph.edge_type``. Layers have to take a bipartite graph, as
    SAGEConv, GATConv, RGCNConv and RelGraphConv do.

    Args:
        model: an ``nn.Module`` of this process, of the same layers in all of them.
        graph: a ``gsb.distributed.DistGraph`` of a graph whose destinations and sources are the same nodes.

    Raises:
        ValueError: the model has no such layer, or the graph is bipartite.
    """
    check_part("wrap", graph)
    if not isinstance(model, nn.Module):
        raise TypeError(f"wrap: model must be an nn.Module, got {type(model).__name__}")
    if not graph.manifest["square"]:
        raise ValueError(f"wrap: layers work on nodes of one kind, but {graph!r} is bipartite; use gsb.spmm and others")
    framework = {}
    for name, module in model.named_modules():
        homes = [base.__module__ for base in type(module).__mro__]
        if any(home.startswith((_PYG, _DGL)) for home in homes):
            framework[name] = "dgl" if any(home.startswith(_DGL) for home in homes) else "pyg"
            module.register_forward_pre_hook(_before(graph, name, framework[name]), with_kwargs=True)
    if not framework:
        raise ValueError(f"wrap: {type(model).__name__} has no layer of torch_geometric.nn or dgl.nn; nothing to do")
    if graph.group is None or not any(parameter.requires_grad for parameter in model.parameters()):
        return model
    return DistributedDataParallel(model, process_group=graph.group)


def _before(graph, layer: str, framework: str):
    """What a layer is given in the place of its arguments."""

    def hook(_: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        names = ("x", "edge_index") if framework == "pyg" else ("graph", "feat")
        given = dict(zip(names, args)) | {name: kwargs.pop(name) for name in names if name in kwargs}
        if framework == "dgl" and "g" in kwargs:  # RelGraphConv calls it so
            given["graph"] = kwargs.pop("g")
        x = given["x" if framework == "pyg" else "feat"]
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"wrap: layer {layer!r} must be given a tensor of features, got {type(x).__name__}")
        whole = torch.cat([x, graph.start(x, layer).wait()])
        if framework == "pyg":
            return ((whole, x), graph.edge_index, *args[2:]), kwargs
        return (graph.block, whole, *args[2:]), kwargs

    return hook
