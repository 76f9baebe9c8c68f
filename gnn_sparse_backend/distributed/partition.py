"""``gsb.distributed.partition``: a graph cut into parts, each in files of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from ..runtime.memory import check_written_out
from ..structures.build import csr_to_coo
from ..structures.graph import Graph
from ..structures.relational.graph import RelGraph
from . import files
from .methods import owners
from .report import Report, draw

MANIFEST = "manifest.json"
VERSION = 1


def partition(
    graph: Graph | RelGraph,
    parts: int,
    folder: str | Path,
    method: str = "metis",
    *,
    features: Any = None,
    labels: Any = None,
    bipartite: bool | None = None,
    seed: int = 0,
    sample: float = 1.0,
    coarsen: bool | None = None,
    progress: bool = True,
) -> Report:
    """Share out the nodes of a graph among ``parts`` processes, and write what each needs into ``folder``.

    A destination's part has all edges into it. What a part holds of sources are its own (inner columns), and copies of
    those that others own and its edges come from (the halo), which are sent at every call of an operator.

    Args:
        graph: a ``Graph`` or ``RelGraph``. A square one has one set of nodes, unless ``bipartite`` says otherwise.
        parts: how many processes will train.
        method: ``"metis"`` for few edges between parts (needs pymetis), ``"random"`` or ``"range"``.
        features: (n_src, ...) array or tensor, memory-mapped ones too: rows of sources.
        labels: (n_dst, ...) array or tensor: rows of destinations.
        bipartite: destinations and sources are different nodes; by default, where their numbers differ.
        seed: of ``"random"``, and of ``sample``.
        sample: the share of the edges, drawn at random, that METIS is shown: its memory and time are theirs. The report
            counts all edges.
        coarsen: METIS is shown groups of nodes in the place of nodes, and the parts are improved node by node; None
            does so where METIS would take more than 1.5 GB (Meyerhenke, Sanders and Schulz, SEA 2014).
        progress: show a bar on a terminal.

    Returns:
        A report of cut edges, halos and balance, which prints as a table. The folder holds it in ``manifest.json``,
        and with Matplotlib as ``report.png``.
    """
    if not isinstance(graph, (Graph, RelGraph)):
        raise TypeError(f"partition: graph must be a gsb.Graph or gsb.RelGraph, got {type(graph).__name__}")
    if not isinstance(parts, int) or isinstance(parts, bool) or not 1 <= parts <= 1 << 15:
        raise ValueError(f"partition: parts must be a number from 1 to {1 << 15}, got {parts!r:.80}")
    if graph.device.type == "meta":
        raise ValueError("partition: graph must have its edges, got one on the device meta")
    if not isinstance(folder, (str, Path)) or not str(folder):
        raise TypeError(f"partition: folder must be a path, got {folder!r:.80}")
    square = graph.shape[0] == graph.shape[1] if bipartite is None else not bipartite
    if square and graph.shape[0] != graph.shape[1]:
        raise ValueError(f"partition: a graph of shape {graph.shape} is bipartite, got bipartite=False")
    row, col, relation = _edges(graph)
    extra = {"features": _rows("features", features, graph.shape[1]), "labels": _rows("labels", labels, graph.shape[0])}
    of_row, of_col = owners(method, row, col, graph.shape, parts, square, seed, sample, coarsen)
    rows, row_place = _places(of_row, parts)
    columns, col_place = (rows, row_place) if square else _places(of_col, parts)
    edges, _ = _had(of_row[row], parts)
    folder = Path(folder)
    told, halos = [], []
    for part in track(range(parts), "partition", console=Console(stderr=True), disable=not progress, transient=True):
        of_part = folder / f"part{part}"
        of_part.mkdir(parents=True, exist_ok=True)
        mine = edges[part]
        source = col[mine]
        far = of_col[source] != part
        halo, at = np.unique(source[far], return_inverse=True)
        order = np.argsort(of_col[halo], kind="stable")  # by owner, then by number
        halo = halo[order]
        local = col_place[source]
        local[far] = columns[part].size + np.argsort(order)[at]
        arrays = {"rows": rows[part], "columns": columns[part], "halo": halo, "edges": mine}
        arrays |= {"row": row_place[row[mine]], "col": local}
        if relation is not None:
            arrays["relation"] = relation[mine]
        kept = {name: files.save(of_part, name, array) for name, array in arrays.items()}
        for name, array in extra.items():
            if array is not None:
                kept[name] = files.save_rows(of_part, name, array, columns[part] if name == "features" else rows[part])
        halos.append(halo)
        cut = int(far.sum())
        told.append({"files": kept, "cut": cut, "receives": np.bincount(of_col[halo], minlength=parts).tolist()})
    for part in range(parts):  # what the others lack, by who lacks it
        lacking = [col_place[halo[of_col[halo] == part]] for halo in halos]
        told[part]["sends"] = [rows.size for rows in lacking]
        of_part = folder / f"part{part}"
        told[part]["files"]["send"] = files.save(of_part, "send", np.concatenate([*lacking, np.empty(0, np.int64)]))
    report = Report.of(method, graph.num_edges, told)
    manifest = {
        "version": VERSION,
        "shape": list(graph.shape),
        "num_edges": graph.num_edges,
        "num_relations": None if relation is None else graph.num_relations,
        "square": square,
        "method": method,
        "seed": seed,
        "sample": sample,
        "coarsen": coarsen,
        "parts": told,
        "report": report.as_dict(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    draw(report, folder / "report.png")
    return report


def _edges(graph: Graph | RelGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Destination, source and relation of each edge, in the user's order."""
    if isinstance(graph, RelGraph):
        return tuple(each.cpu().numpy() for each in (graph.destination, graph.source, graph.relation))
    row, col = csr_to_coo(graph.indptr, graph.indices, graph.edge_ids)
    return row.cpu().numpy(), col.cpu().numpy(), None


def _rows(name: str, given: Any, count: int) -> np.ndarray | None:
    if given is None:
        return None
    if not isinstance(given, (torch.Tensor, np.ndarray)):
        raise TypeError(f"partition: {name} must be a tensor or an array, got {type(given).__name__}")
    if given.ndim == 0 or given.shape[0] != count:
        raise ValueError(f"partition: {name} must have {count} rows, got shape {tuple(given.shape)}")
    if isinstance(given, np.ndarray):
        return given
    if given.layout is not torch.strided or given.is_meta or given.is_quantized or given.dtype == torch.bfloat16:
        raise TypeError(
            f"partition: {name} must be a dense tensor of a type that NumPy has, got {given.dtype}, {given.layout}, on "
            f"{given.device}"
        )
    check_written_out(f"partition: {name}", given)
    return given.detach().cpu().resolve_neg().resolve_conj().numpy()


def _places(part: np.ndarray, parts: int) -> tuple[list[np.ndarray], np.ndarray]:
    """What each part has, in its order, and where each has its place within its part."""
    had, counts = _had(part, parts)
    place = np.empty(part.size, np.int64)
    place[np.concatenate(had)] = np.arange(part.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return had, place


def _had(part: np.ndarray, parts: int) -> tuple[list[np.ndarray], np.ndarray]:
    """What each part has, in its order, and how much that is."""
    order = np.argsort(part.astype(np.int16), kind="stable")
    counts = np.bincount(part, minlength=parts)
    return np.split(order, np.cumsum(counts)[:-1]), counts
