"""The places where a first GPU will probably fail, each checked in a process of its own, all side by side.

Where a check fails it is made once more with the variables that go around the place. Where it holds then, all later
parts get these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from benchmarks.gpu.places import PLACES, Fails
from benchmarks.gpu.runner import ENVIRONMENT
from benchmarks.gpu.told import FAILED, GPU, PREPARE, Told, first_line

PATIENCE_S = 45.0


def run(told: Told) -> None:
    if told.mode != GPU:
        _here(told)
        return
    found = checked({name: {} for name in PLACES}, told.left / 2)
    again = {name: dict(PLACES[name].around) for name, said in found.items() if said and PLACES[name].around}
    repaired = checked(again, told.left - 1)
    adopted: dict[str, str] = {}
    for name, place in PLACES.items():
        if not found[name]:
            told.record(name, what=place.what)
            continue
        around = name in again and not repaired[name]
        adopted |= again.get(name, {}) if around else {}
        told.record(name, FAILED, why=found[name], what=place.what, around=dict(place.around), goes_around=around)
    if adopted:
        (told.work / ENVIRONMENT).write_text(json.dumps(adopted))


def checked(environments: Mapping[str, dict[str, str]], seconds: float) -> dict[str, str]:
    """By name "" where a check holds, else what it says; run side by side, each in its variables."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.places", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **more},
        )
        for name, more in environments.items()
    }
    found = {}
    for name, process in processes.items():
        try:
            said, _ = process.communicate(timeout=max(1.0, min(seconds, PATIENCE_S)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            found[name] = "hangs"
            continue
        print(f"--- {name}\n{said}", flush=True)
        lines = said.strip().splitlines() or ["no words"]
        found[name] = "" if process.returncode == 0 else f"exit status {process.returncode}: {lines[-1][:300]}"
    return found


def _here(told: Told) -> None:
    """In this process, on what stands in for a GPU: kernels give zeros where they are only prepared."""
    import torch

    for name, place in PLACES.items():
        try:
            place.check(torch.device("cpu"))
        except Fails as error:
            if told.mode != PREPARE:
                told.record(name, FAILED, why=first_line(error))
            continue
        told.record(name, what=place.what)
