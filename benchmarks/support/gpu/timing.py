"""Times on a GPU: medians of single calls between two events on the stream, and the bandwidth of a copy."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

NOT_MEASURED = "not measured"
# Contenders take turns, each of some samples.
TURNS, SAMPLES = 3, 10
# Long calls are sampled less: a turn ends after this many seconds, from this many samples on.
PATIENCE_S, FEWEST = 0.7, 2
FLUSHED_BYTES = 256 << 20  # more than any second-level cache
COPIED_BYTES = 1 << 30


def enough(found: list[float]) -> bool:
    """Whether these samples, in seconds, are enough for a turn."""
    return len(found) >= SAMPLES or (len(found) >= FEWEST and sum(found) > PATIENCE_S)


def seconds(call: Callable[[], object], device: torch.device, flush: bool) -> float:
    """The median time of a call on the current stream. flush: other data are written over the second-level cache before
    each.
    """
    buffer = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device) if flush else None
    found: list[float] = []
    while not enough(found):
        if buffer is not None:
            buffer.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(found)


def bandwidth(device: torch.device) -> float:
    """Bytes a second that a copy in memory reads and writes."""
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / seconds(lambda: target.copy_(source), device, False)


def device_and_name() -> tuple[torch.device | None, str]:
    """The GPU and its name; None and words where there is none."""
    if not torch.cuda.is_available():
        return None, f"no GPU at hand: {NOT_MEASURED}"
    return torch.device("cuda"), torch.cuda.get_device_name()
