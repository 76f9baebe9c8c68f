"""What launcher, servers and trainers of a run know of it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

NAME = "graph"


@dataclass(frozen=True)
class Job:
    """A run. machines: with a part of the graph and a server each. trainers: on each machine. separate: whether
    machines are network namespaces; otherwise there is one, this computer.
    """

    model: str
    folder: str
    machines: int
    trainers: int
    separate: bool
    nodes: int
    edges: int
    method: str
    hidden: int
    fanouts: tuple[int, ...]
    batch: int
    steps: int
    lr: float
    dtype: str
    threads: int
    seed: int
    port: int
    timeout: float

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def world(self) -> int:
        return self.machines * self.trainers

    @property
    def part_config(self) -> str:
        return str(self.path / "parts" / f"{NAME}.json")

    @property
    def ip_config(self) -> str:
        return str(self.path / "ip_config.txt")

    def environment(self) -> dict[str, str]:
        """What DGL and OpenMP read from the environment, in servers and trainers."""
        return {
            "DGL_DIST_MODE": "distributed",
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_SAMPLER": "0",
            "DGL_NUM_CLIENT": str(self.world),
            "DGL_DIST_MAX_TRY_TIMES": "20",
            "DGLBACKEND": "pytorch",
            "OMP_NUM_THREADS": str(self.threads),
        }

    def write(self) -> Path:
        path = self.path / "job.json"
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: str | Path) -> Job:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(**told | {"fanouts": tuple(told["fanouts"])})
