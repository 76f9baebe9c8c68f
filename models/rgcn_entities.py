"""AIFB, MUTAG, BGS and AM (Ristoski et al., ISWC 2016) through each framework's own data set class, which downloads
them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.dataset import DataError

NAMES = ("aifb", "mutag", "bgs", "am")

# (name, origin, edge_index, edge_type, relations, labels, training nodes, test nodes)
Entities = tuple[str, str, Tensor, Tensor, int, Tensor, Tensor, Tensor]


def load(name: str, framework: str) -> Entities:
    """Edges with their inverses, labels (-1 where unknown), and the numbers of training and test nodes.

    Raises DataError that says what to do where the data set is neither stored nor to be downloaded.
    """
    try:
        return {"dgl": _from_dgl, "pyg": _from_pyg}[framework](name)
    except ImportError as error:
        raise DataError(f"{name.upper()} cannot be read without {error.name}; try: pip install rdflib pandas") from None
    except (OSError, RuntimeError) as error:
        where = {"dgl": _dgl_folder, "pyg": _pyg_folder}[framework]()
        raise DataError(
            f"{name.upper()} cannot be downloaded: {error or type(error).__name__}. It is kept in {where}: run this "
            "once with a network, or copy that folder from a machine that has it; 'generated' needs no "
            "download"
        ) from None


def _from_dgl(name: str) -> Entities:
    """The heterogeneous graph without its node types; DGL leaves out nodes that are literals."""
    import dgl
    import dgl.data

    dataset = getattr(dgl.data, f"{name.upper()}Dataset")()
    hetero, category = dataset[0], dataset.predict_category
    graph = dgl.to_homogeneous(hetero)
    own = graph.ndata[dgl.NTYPE] == hetero.get_ntype_id(category)
    nodes = own.nonzero().flatten()[graph.ndata[dgl.NID][own].argsort()]  # by number in the category
    data = hetero.nodes[category].data
    train, test = (nodes[data[f"{part}_mask"].bool()] for part in ("train", "test"))
    labels = torch.full((graph.num_nodes(),), -1)
    labels[nodes] = data["label"].long()
    return (
        name,
        "DGL",
        torch.stack(graph.edges()),
        graph.edata[dgl.ETYPE].long(),
        len(hetero.canonical_etypes),
        labels,
        train,
        test,
    )


def _from_pyg(name: str) -> Entities:
    from torch_geometric.datasets import Entities as Dataset

    dataset = Dataset(str(_pyg_folder()), name.upper())
    data = dataset[0]
    labels = torch.full((data.num_nodes,), -1)
    labels[data.train_idx], labels[data.test_idx] = data.train_y, data.test_y
    return name, "PyG", data.edge_index, data.edge_type, dataset.num_relations, labels, data.train_idx, data.test_idx


def _dgl_folder():
    from dgl.data.utils import get_download_dir

    return get_download_dir()


def _pyg_folder():
    from platformdirs import user_cache_path

    return user_cache_path("gnn-sparse-backend") / "entities"
