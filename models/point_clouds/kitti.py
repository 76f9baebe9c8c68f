"""Scans in the files of KITTI and SemanticKITTI (Behley et al., ICCV 2019)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from models.dataset import DataError
from models.point_clouds.classes import LEARNING_MAP
from models.point_clouds.scan import Scan

VALIDATION = "08"
"""The sequence that is customarily left out of training."""
SAMPLE = "kitti_000008.bin"
"""One scan, without labels, that may lie in $GSB_DATA."""


def read(path: Path, labels: Path | None = None) -> Scan:
    """A scan of ``velodyne/*.bin``: float32 rows of x, y, z, remission; and of ``labels/*.label``: a uint32 a point,
    whose lower half is the raw class.

    Raises DataError that says what is wrong with a file.
    """
    try:
        rows = np.fromfile(path, np.float32)
        raw = None if labels is None else np.fromfile(labels, np.uint32)
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from None
    if not len(rows) or len(rows) % 4:
        raise DataError(f"{path} holds {len(rows)} float32 numbers: a scan has 4 for each point, at least one point")
    rows = rows.reshape(-1, 4)
    if not np.isfinite(rows).all():
        bad = int(np.argmin(np.isfinite(rows).all(1)))
        raise DataError(f"{path}: point {bad} is {rows[bad].tolist()}: coordinates must be finite")
    if raw is None:
        classes = np.zeros(len(rows), np.int64)
    elif len(raw) != len(rows):
        raise DataError(f"{labels} has {len(raw)} labels, and {path} {len(rows)} points")
    else:
        given = raw & 0xFFFF
        classes = np.where(given < len(LEARNING_MAP), LEARNING_MAP[np.minimum(given, len(LEARNING_MAP) - 1)], 0)
    return Scan(path.stem, rows[:, :3].copy(), rows[:, 3].copy(), classes)


def files(folder: Path) -> tuple[list[tuple[Path, Path]], list[tuple[Path, Path]]]:
    """(training, validation): pairs of a scan's file and its labels', of every ``velodyne`` with a ``labels`` beside it
    in the folder or below.

    Validation is sequence 08 where it is there with others, else the last fifth of all scans.

    Raises DataError where there are fewer than two scans with labels.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder")
    sequences: dict[str, list[tuple[Path, Path]]] = {}
    for scans in sorted(folder.rglob("velodyne")):
        pairs = [(each, scans.parent / "labels" / f"{each.stem}.label") for each in sorted(scans.glob("*.bin"))]
        sequences[str(scans.parent.relative_to(folder))] = [pair for pair in pairs if pair[1].is_file()]
    left_out = [name for name in sequences if Path(name).name == VALIDATION]
    train = [pair for name, pairs in sequences.items() if name not in left_out for pair in pairs]
    val = [pair for name in left_out for pair in sequences[name]]
    if not train or not val:
        every = train + val
        cut = len(every) - max(1, len(every) // 5)
        train, val = every[:cut], every[cut:]
    if not train or not val:
        raise DataError(
            f"{folder} has {len(train + val)} scans velodyne/*.bin with labels/*.label beside them; a training needs "
            "two, one of them for validation"
        )
    return train, val


def sample() -> Scan | None:
    """The scan in $GSB_DATA; None where there is none."""
    folder = os.environ.get("GSB_DATA")
    path = Path(folder or ".") / SAMPLE
    return read(path) if folder and path.is_file() else None
