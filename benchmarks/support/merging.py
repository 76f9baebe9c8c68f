"""Reports that are measured piece by piece: the cells of several runs in one report (plain values)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

# What tells apart the entries of a report's lists, and the words by which its dictionaries are filed.
KEYS: Mapping[str, tuple[str, ...]] = {
    "cells": ("graph", "op", "mode", "features", "width", "framework", "kind", "precision", "part"),
    "maps": ("where",),
    "networks": ("where",),
    "graphs": ("name",),
    "growth": ("edges", "width"),
}
DICTS = ("contenders", "preparation", "per_call", "skipped")
SAME = ("cpu", "cores", "threads", "reused_memory")


def read(path: Path) -> dict | None:
    """The report at ``path``; None where there is none."""
    return json.loads(path.read_text()) if path.exists() else None


def merge(before: Mapping | None, now: Mapping) -> dict:
    """The report ``now`` with what it lacks from an earlier one; the summary is still that of ``now`` alone.

    A cell that was measured again counts as measured now. The machine's state, its limits and constants are those of
    ``now``; each cell keeps the limits that it was rated by. Raises ValueError where the two are of different machines.
    """
    if before is None:
        return dict(now)
    for name in SAME:
        # reports of former releases say nothing of an allocator, and had the system's
        then, here = before["machine"].get(name, False), now["machine"].get(name, False)
        if then != here:
            raise ValueError(
                f"the earlier report was measured with {name} {then!r}, and this one with {here!r}: give another "
                "--out, or leave --append out"
            )
    merged = dict(now)
    for name, keys in KEYS.items():
        if name in now:
            entries = {tuple(entry.get(key) for key in keys): entry for entry in [*before.get(name, ()), *now[name]]}
            merged[name] = list(entries.values())
    for name in DICTS:
        if name in now:
            merged[name] = {**before.get(name, {}), **now[name]}
    if "skipped" in merged:
        found = {cell["graph"] for cell in merged["cells"]}
        merged["skipped"] = {name: reason for name, reason in merged["skipped"].items() if name not in found}
    return merged
