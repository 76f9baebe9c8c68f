"""DGL's server of one part: ``python -m models.dgl_engine.server JOB MACHINE``."""

from __future__ import annotations

import json
import resource
import sys

import dgl
import torch
from dgl.distributed import DistGraphServer

from models.dgl_engine.job import Job


def main() -> None:
    job, machine = Job.read(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(job.threads)
    dgl.utils.set_num_threads(job.threads)
    dgl.seed(job.seed + machine)
    DistGraphServer(machine, job.ip_config, 1, job.world, job.part_config, graph_format=["csc"]).start()
    told = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    (job.path / f"server{machine}.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
