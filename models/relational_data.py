"""Entity classification data sets: nodes without features, edges of several relations, labels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models import generated, rgcn_entities
from models.data import _read
from models.dataset import DataError, Dataset

NAMES = {
    "debian": "sections of packages by their dependencies (Debian)",
    "wordnet": "lexicographer files of synsets by their relations (WordNet 3.0)",
}
RELATIONS = 20


@dataclass(frozen=True)
class RelationalDataset(Dataset):
    """A ``Dataset`` without features whose edges have relations.

    edge_type: (E,) int64 in [0, num_relations). Edges come relation by relation; every relation has its inverse among
    the others, with its edges reversed (Schlichtkrull et al., 2018).
    """

    edge_type: Tensor
    num_relations: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, {self.num_relations} relations, "
            f"{self.num_classes} classes ({self.origin})"
        )


def load(name: str, framework: str, *, nodes: int, edges: int, seed: int) -> RelationalDataset:
    """``generated``, ``debian`` or ``wordnet`` from $GSB_DATA, ``aifb``, ``mutag``, ``bgs``, ``am``, or an ``.npz``
    file's path.

    A file has ``src``, ``dst`` and ``etype`` (E,), and ``label`` or ``labels`` (N,), integers, negative where unknown.
    nodes, edges: of the generated graph, before inverse edges are added. framework: ``dgl`` or ``pyg``, whose data set
    class reads aifb, mutag, bgs and am.

    Raises DataError that says what is wrong with the name, the file or the data.
    """
    rng = np.random.default_rng([seed, 1])
    if name == "generated":
        return _generated(nodes, edges, seed, rng)
    if name in rgcn_entities.NAMES:
        return of_edges(*rgcn_entities.load(name, framework), rng)
    path = Path(name)
    if name in NAMES:
        folder = os.environ.get("GSB_DATA")
        if not folder:
            raise DataError(
                f"data set {name!r} is read from $GSB_DATA/{name}.npz, but GSB_DATA is not set; set it, or "
                "take 'generated'"
            )
        path = Path(folder) / f"{name}.npz"
    elif path.suffix != ".npz":
        known = ", ".join(map(repr, (*NAMES, *rgcn_entities.NAMES)))
        raise DataError(f"unknown data set {name!r}: give 'generated', {known}, or the path of a .npz file")
    arrays = _read(path)
    labels = arrays.get("labels", arrays.get("label"))
    missing = [key for key in ("src", "dst", "etype") if key not in arrays] + ([] if labels is not None else ["label"])
    if missing:
        raise DataError(f"{path} has no array {missing[0]!r}; needed are 'src', 'dst', 'etype' and 'label'")
    ends = [arrays[key].astype(np.int64) for key in ("src", "dst", "etype")]
    if len({len(a) for a in ends}) != 1 or any(a.size and (a.min() < 0 or a.max() >= len(labels)) for a in ends[:2]):
        raise DataError(f"{path}: src, dst and etype must be equally long, and src and dst in [0, {len(labels)})")
    return _dataset(path.stem, NAMES.get(name, str(path)), *ends, labels, rng)


def _generated(nodes: int, edges: int, seed: int, rng) -> RelationalDataset:
    """Power-law communities, which are the classes; most edges have a relation that the communities of their ends
    decide.
    """
    try:
        matrix, labels = generated.graph(nodes, edges, seed)
    except ValueError as error:
        raise DataError(f"no graph of {nodes} nodes and {edges} edges: {error}") from None
    coo = matrix.tocoo()
    told = (labels[coo.col] * 7 + labels[coo.row] * 3) % RELATIONS
    kinds = np.where(rng.random(coo.nnz) < 0.7, told, np.minimum(rng.zipf(1.6, coo.nnz) - 1, RELATIONS - 1))
    origin = f"power-law communities, {RELATIONS} relations, seed {seed}"
    return _dataset("generated", origin, coo.col.astype(np.int64), coo.row.astype(np.int64), kinds, labels, rng)


def of_edges(
    name: str,
    origin: str,
    edge_index: Tensor,
    edge_type: Tensor,
    relations: int,
    labels: Tensor,
    train: Tensor,
    test: Tensor,
    rng,
) -> RelationalDataset:
    """A data set of edges that have their inverses already; a fifth of ``train``, node numbers, becomes the validation
    set.
    """
    order = edge_type.argsort(stable=True)
    mixed = torch.from_numpy(rng.permutation(train.numpy()))
    masks = torch.zeros(3, len(labels), dtype=torch.bool)
    for mask, part in zip(masks, (mixed[len(mixed) // 5 :], mixed[: len(mixed) // 5], test)):
        mask[part] = True
    return RelationalDataset(
        name,
        origin,
        edge_index[:, order].contiguous(),
        torch.empty(len(labels), 0),
        labels,
        *masks,
        edge_type[order].contiguous(),
        relations,
    )


def _dataset(name: str, origin: str, src, dst, kinds, labels, rng) -> RelationalDataset:
    count = int(kinds.max(initial=-1)) + 1
    source, destination = np.concatenate([src, dst]), np.concatenate([dst, src])
    kinds = np.concatenate([kinds, kinds + count])
    order = np.argsort(kinds, kind="stable")
    labelled = rng.permutation(np.flatnonzero(labels >= 0))
    masks = torch.zeros(3, len(labels), dtype=torch.bool)
    for mask, part in zip(masks, np.split(labelled, [len(labelled) // 2, 3 * len(labelled) // 4])):
        mask[torch.from_numpy(part)] = True
    return RelationalDataset(
        name,
        origin,
        torch.from_numpy(np.stack((source, destination))[:, order]),
        torch.empty(len(labels), 0),
        torch.from_numpy(labels.astype(np.int64)),
        *masks,
        torch.from_numpy(kinds[order].astype(np.int64)),
        2 * count,
    )
