"""Graphs in files."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .arguments import FORMATS


class FileError(ValueError):
    """A file without a graph; the message says why and what to do."""


def load_graph(path: Path):
    """The ``Graph`` in a file. Raises FileError."""
    with _reading(path):
        if path.suffix == ".npz":
            return _npz(path)
        if path.suffix in (".mtx", ".mm") or path.name.endswith(".mtx.gz"):
            from scipy.io import mmread

            return _graph().from_scipy(_sparse(mmread(path)))
        raise FileError(f"{path} has the unknown suffix {path.suffix!r}: give {FORMATS}")


def load_relations(path: Path):
    """The ``RelGraph`` in a file. Raises FileError."""
    from ..structures.relational.graph import RelGraph

    with _reading(path):
        arrays = _arrays(path) if path.suffix == ".npz" else {}
        missing = [name for name in ("src", "dst", "etype") if name not in arrays]
        if missing:
            raise FileError(f"{path} has no array {missing[0]!r}: relations are read from .npz with src, dst and etype")
        nodes = _nodes(arrays)
        return RelGraph.from_triples(arrays["src"], arrays["dst"], arrays["etype"], (nodes, nodes))


@contextmanager
def _reading(path: Path):
    """FileError for whatever keeps a file from being read."""
    if not path.is_file():
        raise FileError(f"{path} is not a file")
    try:
        yield
    except FileError:
        raise
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileError(f"{path} cannot be read: {error}") from None


def on_device(graph, device: str):
    """The graph on the CPU, or on the current GPU. Raises ValueError where there is no GPU."""
    if device == "cpu":
        return graph
    import torch

    if torch.cuda.is_available():
        if hasattr(graph, "to"):
            return graph.to("cuda")
        arrays = [a.to("cuda") for a in (graph.source, graph.destination, graph.relation)]
        return type(graph).from_triples(*arrays, graph.shape, graph.num_relations)
    why = (
        "is built without CUDA"
        if torch.version.cuda is None
        else f"is built for CUDA {torch.version.cuda} and finds no GPU"
    )
    raise ValueError(
        f"--device cuda: there is no GPU here: PyTorch {torch.__version__} {why}; `gsb doctor` lists what there is, "
        "and --device cpu needs none of it"
    )


def set_threads(count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


def _npz(path: Path):
    arrays = _arrays(path)
    if "format" in arrays:
        from scipy.sparse import load_npz

        return _graph().from_scipy(load_npz(path))
    if "indptr" in arrays and "indices" in arrays:
        rows, columns = max(0, arrays["indptr"].size - 1), int(arrays["indices"].max(initial=-1)) + 1
        shape = tuple(int(n) for n in arrays["shape"]) if "shape" in arrays else (rows, max(rows, columns))
        return _graph().from_csr(arrays["indptr"], arrays["indices"], shape)
    if "src" in arrays and "dst" in arrays:
        nodes = _nodes(arrays)
        return _graph().from_coo(arrays["dst"], arrays["src"], (nodes, nodes))
    raise FileError(f"{path} has the arrays {sorted(arrays) or 'of no graph'}: give {FORMATS}")


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {
            name: archive[name]
            for name in archive.files
            if name in ("indptr", "indices", "shape", "src", "dst", "etype", "format", "label", "labels")
        }


def _nodes(arrays: dict[str, np.ndarray]) -> int:
    """How many nodes edges from src to dst, and labels, tell of."""
    known = [len(arrays[name]) for name in ("label", "labels") if name in arrays]
    return max([*known, *(int(arrays[end].max(initial=-1)) + 1 for end in ("src", "dst"))])


def _sparse(matrix):
    from scipy.sparse import issparse

    if not issparse(matrix):
        raise FileError("it holds a dense matrix, not a sparse one")
    return matrix


def _graph():
    from ..structures.graph import Graph  # PyTorch, which `gsb cache` does without

    return Graph
