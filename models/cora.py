"""Cora (Planetoid split) through each framework's own data set class.

The raw files ``ind.cora.*`` are taken from ``$GSB_DATA/planetoid`` if they are there, otherwise the framework
downloads them. DGL fetches its raw files as one archive; given the folder, its class runs with ``download``, the
step that DGL documents for overriding, replaced by a copy under the names that DGL's archive has.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import torch

from models.dataset import DataError, Dataset

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")


def raw_folder() -> Path | None:
    """``$GSB_DATA/planetoid`` if it holds all of Cora's raw files."""
    root = os.environ.get("GSB_DATA")
    folder = Path(root or ".") / "planetoid"
    return folder if root and all((folder / f"ind.cora.{part}").is_file() for part in PARTS) else None


def load_cora(framework: str) -> Dataset:
    """Cora with row-normalised features: 2,708 nodes, 10,556 edges (both directions), 140 training nodes.

    Raises DataError where the files are neither local nor to be downloaded.
    """
    raw = raw_folder()
    with tempfile.TemporaryDirectory(prefix="gsb-cora-") as scratch, warnings.catch_warnings():
        # the raw files are old pickles: reading them warns about names that SciPy and NumPy have moved
        warnings.simplefilter("ignore")
        try:
            return {"dgl": _from_dgl, "pyg": _from_pyg}[framework](raw, Path(scratch))
        except OSError as error:
            where = f"in {raw}" if raw else "by download (no $GSB_DATA/planetoid with the raw files ind.cora.*)"
            raise DataError(f"Cora cannot be read {where}: {error}") from None


def _copy(raw: Path, folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    for part in PARTS:
        shutil.copyfile(raw / f"ind.cora.{part}", folder / f"ind.{name}.{part}")


def _from_dgl(raw: Path | None, scratch: Path) -> Dataset:
    from dgl.data import CoraGraphDataset

    class LocalCora(CoraGraphDataset):
        def download(self):
            _copy(raw, Path(self.raw_path), self.name)

    dataset = LocalCora(raw_dir=str(scratch), verbose=False) if raw else CoraGraphDataset(verbose=False)
    graph = dataset[0]
    data = graph.ndata
    return Dataset(
        "cora",
        f"DGL, {raw or 'downloaded'}",
        torch.stack(graph.edges()),
        data["feat"],
        data["label"],
        *(data[f"{part}_mask"].bool() for part in ("train", "val", "test")),
    )


def _from_pyg(raw: Path | None, scratch: Path) -> Dataset:
    from platformdirs import user_cache_path
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import NormalizeFeatures

    root = scratch if raw else user_cache_path("gnn-sparse-backend") / "planetoid"
    if raw:
        _copy(raw, scratch / "Cora" / "raw", "cora")
    data = Planetoid(str(root), "Cora", transform=NormalizeFeatures())[0]
    return Dataset(
        "cora",
        f"PyG, {raw or 'downloaded'}",
        data.edge_index,
        data.x,
        data.y,
        data.train_mask,
        data.val_mask,
        data.test_mask,
    )
