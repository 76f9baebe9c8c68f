"""What the planner knows of a GPU: its name, its sizes, and how fast it moves bytes, as the driver tells or as
guessed.
"""

from __future__ import annotations

from ...frozen import dataclass

# Bytes of memory a second where the driver does not tell: of an A100, A10, L40, H100 and B200, by their data sheets.
_GUESSES = {"sm_80": 1.5e12, "sm_86": 6e11, "sm_89": 8.6e11, "sm_90": 3.3e12, "sm_100": 8e12}
_GUESS = 5e11
_CACHE, _CLOCK = 32 << 20, 1.5e9


@dataclass(frozen=True)
class Gpu:
    """A GPU. arch: its compute architecture, "sm_90". multiprocessors: how many. cache: bytes of the second-level
    cache.
    clock: of the multiprocessors, in Hz. bandwidth: bytes of memory a second. source: in words, where that is from.
    """

    name: str
    arch: str
    multiprocessors: int = 1
    cache: int = _CACHE
    clock: float = _CLOCK
    bandwidth: float = _GUESS
    source: str = "a guess"

    @property
    def machine(self) -> str:
        """The name under which measurements are kept: times of one GPU are worth nothing on another."""
        return f"{self.name}, {self.arch}, {self.multiprocessors} multiprocessors, cache {self.cache >> 10}K"


def describe_gpu(
    name: str,
    arch: str,
    multiprocessors: int,
    cache: int = 0,
    clock_khz: int = 0,
    memory_khz: int = 0,
    bus_bits: int = 0,
) -> Gpu:
    """A GPU from the properties of a device; 0 stands for what is not known.

    clock_khz: of the multiprocessors. memory_khz, bus_bits: memory moves ``bus_bits`` twice in each cycle.
    """
    if memory_khz and bus_bits:
        bandwidth, source = 2e3 * memory_khz * bus_bits / 8, "from the clock and the width of its memory"
    else:
        bandwidth, source = _GUESSES.get(arch, _GUESS), f"guessed from {arch}"
    return Gpu(name, arch, multiprocessors, cache or _CACHE, 1e3 * clock_khz or _CLOCK, bandwidth, source)
