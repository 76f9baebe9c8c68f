"""The packs of this process: where a kernel is looked for before the cache on disk and the compiler.

The processor's target is settled once, when it is first asked for (`codegen.host_target`): with packs it is the best of
theirs that runs here. So all packs are loaded before the first kernel, by ``GSB_PACK`` or `load_pack`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...config import PACK
from ...frozen import dataclass
from ...system import after_fork
from .errors import PackError
from .file import Pack, PackedKernel, PackedTarget, read_pack
from .processor import lacking
from .toolchain import calling_versions


@dataclass(frozen=True)
class Found:
    """A kernel in a pack."""

    pack: Pack
    kernel: PackedKernel

    def read(self) -> bytes:
        """The library; PackError where it is not the one that was packed."""
        return self.pack.read(self.kernel)


class Packs:
    """Packs in the order in which they were loaded; the first that has a kernel gives it.

    settled: the key of the target whose kernels this process asks for; None until one was asked for.
    """

    def __init__(self) -> None:
        self._loaded: tuple[Pack, ...] | None = None
        self._used: Counter[str] = Counter()
        self.settled: str | None = None
        self.make_lock()

    def make_lock(self) -> None:
        self._guard = threading.RLock()

    @property
    def loaded(self) -> tuple[Pack, ...]:
        """All packs, those of ``GSB_PACK`` first. Raises PackError where one of these cannot be used."""
        if self._loaded is None:
            with self._guard:
                if self._loaded is None:
                    paths = (PACK.get() or "").split(os.pathsep)
                    self._loaded = tuple(self._checked(path, None) for path in paths if path)
        return self._loaded

    def load(self, path: str | os.PathLike[str], sha256: str | None) -> Pack:
        """Load one more."""
        with self._guard:
            before = self.loaded
            pack = self._checked(path, sha256)
            same = next((each for each in before if each.sha256 == pack.sha256), None)
            if same is None:
                self._loaded = (*before, pack)
        return same or pack

    def find(self, identity: str) -> Found | None:
        """The kernel of an `identity_of`, counted where there is one."""
        for pack in self.loaded:
            kernel = pack.by_identity.get(identity)
            if kernel is not None:
                with self._guard:
                    self._used[pack.sha256] += 1
                return Found(pack, kernel)
        return None

    def used(self, pack: Pack) -> int:
        """How many kernels of a pack this process has taken."""
        return self._used[pack.sha256]

    def target(self, name: str | None = None) -> PackedTarget | None:
        """The best target, of this name if one is given, that runs here; None where there is none."""
        runs = [each for each in self._targets() if name in (None, each.name) and not lacking(each.machine, each.needs)]
        return max(runs, key=lambda each: len(each.needs), default=None)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the planner went by when the kernels of the first pack were chosen; empty without a pack."""
        return self.loaded[0].settings if self.loaded else {}

    def nearest_threads(self, threads: int) -> int:
        """The number of threads nearest to this that the packs were made for, or this without a pack. Several threads
        are nearer to several than to one, since one has kernels of its own.
        """
        counts = [count for pack in self.loaded for count in pack.settings.get("threads", ())]
        return min(counts, key=lambda count: ((count > 1) != (threads > 1), abs(count - threads)), default=threads)

    def _targets(self) -> list[PackedTarget]:
        return [target for pack in self.loaded for target in pack.targets]

    def _checked(self, path: str | os.PathLike[str], sha256: str | None) -> Pack:
        pack = read_pack(path, calling_versions(), sha256)
        reasons = {target.name: lacking(target.machine, target.needs) for target in pack.targets}
        if all(reasons.values()):
            words = "; ".join(f"for {name} it lacks {' '.join(lacks)}" for name, lacks in reasons.items())
            raise PackError(
                f"{path} has no kernels that run on this processor ({words}): pack for it with `gsb pack --target`"
            )
        if self.settled is not None and self.settled not in [target.key for target in pack.targets]:
            raise PackError(
                f"{path} was loaded after the first kernel, and has none for the target that was settled then "
                f"({self.settled}): call gsb.load_pack before gsb.enable and the first operator, or set GSB_PACK"
            )
        return pack


packs = Packs()
after_fork(packs.make_lock)


def load_pack(path: str | os.PathLike[str], sha256: str | None = None) -> Pack:
    """Take kernels from a pack from now on, in this process.

        gsb.load_pack("kernels.gsb", sha256="9f86d0...")

    What a pack has is not compiled, and needs no compiler: a process whose kernels are all in packs works without TVM,
    on a read-only file system, and as any user. Call it before `enable` and the first operator: the level of the
    processor is settled then, as the highest among the packs that runs here. ``GSB_PACK`` loads packs without a call.

    A pack is machine code. Its hash finds damage; that nobody else made it is known only where ``sha256`` is given, as
    `pack` returned it.

    Args:
        path: a file that `gsb.pack` or ``gsb pack`` made.
        sha256: what its hash must be, 64 hexadecimal digits.

    Returns:
        The pack, with its ``sha256``, ``targets`` and ``kernels``.

    Raises:
        PackError: the file cannot be read, is damaged, another, of other versions, or has nothing that runs here; or
            kernels of another target ran before.
    """
    return packs.load(path, sha256)
