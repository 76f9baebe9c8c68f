"""What a plan costs on a GPU: counts of what it does, times what one of each takes (`cost` has the like for a CPU).

Bytes gathered from memory and from the second-level cache, in whole sectors; launches; lanes, the idle ones too; and
the longest task, which the others wait for. The terms overlap nothing. **The model has not been compared with a GPU
yet**, so it chooses nothing: it orders the candidates of `gsb.explain` and says what they differ in.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .gpu import Gpu

# Instructions for an edge in a lane, and lanes of a multiprocessor.
_INSTRUCTIONS, _LANES = 6, 128
# How much cheaper a byte is from the second-level cache than from memory.
NEARER = 2.5
_LAUNCH, _TURN = 3e-6, 6e-7

MEANINGS: Mapping[str, str] = {
    "launch": "a kernel starts",
    "stream": "a byte is read or written in order",
    "near": "a byte of a gathered row, from the second-level cache",
    "far": "a byte of a gathered row, from memory",
    "step": "what a lane does for an edge",
    "turn": "an edge of the longest task, which waits for its row",
}
"""What one of each unit is, for people."""
UNITS = tuple(MEANINGS)


@functools.cache
def default_units(gpu: Gpu) -> dict[str, float]:
    """Seconds for one of each, from what is known of the GPU; launch and turn are guesses."""
    byte = 1 / gpu.bandwidth
    step = _INSTRUCTIONS / (gpu.multiprocessors * _LANES * gpu.clock)
    return dict(zip(UNITS, (_LAUNCH, byte, byte / NEARER, byte, step, _TURN)))
