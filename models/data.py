"""Node-classification data sets: generated, Cora, or a file of the user's."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch

from gnn_sparse_backend import Graph
from models import generated
from models.cora import load_cora
from models.dataset import DataError, Dataset


def load(name: str, framework: str, *, nodes: int = 100_000, edges: int = 1_000_000, seed: int = 0) -> Dataset:
    """The data set called ``name``: ``generated``, ``cora``, or the path of an ``.npz`` file.

    framework: ``dgl`` or ``pyg``: Cora is read with that framework's own data set class.
    nodes, edges: size of the generated graph. seed: of everything that is generated, splits included.

    Raises DataError that says what is wrong with the name, the file or the data.
    """
    if name == "generated":
        return power_law_communities(nodes, edges, seed)
    if name == "cora":
        return load_cora(framework)
    if name.endswith(".npz"):
        return load_npz(Path(name), seed)
    raise DataError(f"unknown data set {name!r}: give 'generated', 'cora', or the path of a .npz file")


def power_law_communities(nodes: int, edges: int, seed: int) -> Dataset:
    """A graph with power-law degrees whose communities are the classes; a node's own features say little."""
    try:
        matrix, labels = generated.graph(nodes, edges, seed)
    except ValueError as error:
        raise DataError(f"no graph of {nodes} nodes and {edges} edges: {error}") from None
    rng = np.random.default_rng([seed, 1])
    return _dataset(
        "generated",
        f"power-law communities, seed {seed}",
        matrix.indptr,
        matrix.indices,
        generated.features(labels, rng),
        labels,
        rng,
    )


def load_npz(path: Path, seed: int) -> Dataset:
    """A square graph from an ``.npz`` file.

    Needs either ``indptr`` (N + 1,) and ``indices`` (E,), CSR with rows as destinations, or ``src`` and ``dst`` (E,).
    Optional: ``features`` (N, F), and ``labels`` or ``label`` (N,), integers, negative where unknown. What is missing
    is generated from the seed, and ``origin`` says so: labels vary smoothly over the graph, features are a noisy hint
    of the label.
    """
    arrays = _read(path)
    rng = np.random.default_rng([seed, 1])
    labels = arrays.get("labels", arrays.get("label"))
    features = arrays.get("features")
    known = [len(a) for a in (labels, features) if a is not None and a.ndim]
    try:
        if "indptr" in arrays and "indices" in arrays:
            nodes = max(0, arrays["indptr"].size - 1)
            graph = Graph.from_csr(arrays["indptr"], arrays["indices"], (nodes, nodes))
        elif "src" in arrays and "dst" in arrays:
            ends = [int(arrays[end].max(initial=-1)) + 1 for end in ("src", "dst")]
            nodes = max(known + ends)
            graph = Graph.from_coo(arrays["dst"], arrays["src"], (nodes, nodes))
        else:
            raise DataError(
                f"{path} has the arrays {sorted(arrays)}; needed are 'indptr' and 'indices', or 'src' and 'dst'"
            )
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, DataError) else DataError(f"{path}: {error}") from None
    if nodes < 4:
        raise DataError(f"{path} has {nodes} nodes: too few to split into training, validation and test nodes")

    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    if labels is None:
        labels = generated.smooth_labels(indptr, indices, rng)
    if labels.shape != (nodes,) or labels.dtype.kind not in "iu":
        raise DataError(f"{path}: labels must be ({nodes},) integers, got {labels.shape} {labels.dtype}")
    if labels.max() < 0:
        raise DataError(f"{path}: no label is known (all are negative)")
    if features is None:
        features = generated.features(labels, rng)
    if features.ndim != 2 or len(features) != nodes or features.shape[1] == 0 or features.dtype.kind not in "iuf":
        raise DataError(f"{path}: features must be ({nodes}, F) numbers, got {features.shape} {features.dtype}")
    made = [
        what for what, keys in (("features", {"features"}), ("labels", {"labels", "label"})) if not keys & set(arrays)
    ]
    origin = f"{path}; generated: {' and '.join(made)}" if made else str(path)
    return _dataset(path.stem, origin, indptr, indices, features, labels, rng)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path} is not an .npz archive; write it with numpy.savez")
        with archive:
            return {key: archive[key] for key in archive}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise error if isinstance(error, DataError) else DataError(f"{path} cannot be read as .npz: {error}") from None


def _dataset(name, origin, indptr, indices, features, labels, rng) -> Dataset:
    """CSR arrays to a Dataset, with a random split of the labelled nodes: half, a quarter, a quarter."""
    nodes = len(labels)
    destinations = np.repeat(np.arange(nodes), np.diff(indptr))
    edge_index = torch.from_numpy(np.stack((indices.astype(np.int64), destinations)))
    labelled = rng.permutation(np.flatnonzero(labels >= 0))
    masks = torch.zeros(3, nodes, dtype=torch.bool)
    parts = np.split(labelled, [len(labelled) // 2, 3 * len(labelled) // 4])
    for mask, part in zip(masks, parts):
        mask[torch.from_numpy(part)] = True
    return Dataset(
        name,
        origin,
        edge_index,
        torch.from_numpy(features.astype(np.float32)),
        torch.from_numpy(labels.astype(np.int64)),
        *masks,
    )
