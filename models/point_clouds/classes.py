"""The classes of SemanticKITTI (Behley et al., ICCV 2019): their names, their colours, and the map that makes them of
raw labels.
"""

from __future__ import annotations

import numpy as np

NAMES = (
    "unlabelled",
    "car",
    "bicycle",
    "motorcycle",
    "truck",
    "other vehicle",
    "person",
    "bicyclist",
    "motorcyclist",
    "road",
    "parking",
    "pavement",
    "other ground",
    "building",
    "fence",
    "vegetation",
    "trunk",
    "terrain",
    "pole",
    "traffic sign",
)
"""By class. Class 0 is ignored: it is neither trained on nor evaluated."""
IGNORED = 0
CLASS = {name: number for number, name in enumerate(NAMES)}

COLOURS = (
    "#d0d0d0", "#6496f5", "#64e6f5", "#1e3c96", "#501eb4", "#0000ff", "#ff1e1e", "#ff28c8", "#96285a", "#ff00ff",
    "#ff96ff", "#4b004b", "#af004b", "#ffc800", "#ff7832", "#00af00", "#873c00", "#96f050", "#c8b400", "#ff0000",
)  # fmt: skip
"""By class, those of the data set's own pictures."""

# raw label: class. Raw labels 252 to 259 are of moving things, which are the same classes.
_RAW = {
    0: 0, 1: 0, 10: 1, 11: 2, 13: 5, 15: 3, 16: 5, 18: 4, 20: 5, 30: 6, 31: 7, 32: 8, 40: 9, 44: 10, 48: 11, 49: 12,
    50: 13, 51: 14, 52: 0, 60: 9, 70: 15, 71: 16, 72: 17, 80: 18, 81: 19, 99: 0, 252: 1, 253: 7, 254: 6, 255: 8,
    256: 5, 257: 5, 258: 4, 259: 5,
}  # fmt: skip
LEARNING_MAP = np.zeros(max(_RAW) + 1, np.int64)
"""(260,) the class of each raw label, 0 where there is none."""
LEARNING_MAP[list(_RAW)] = list(_RAW.values())
