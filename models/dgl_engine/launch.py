"""Starts the store's servers and the trainers, and waits for them: ``python -m models.dgl_engine.launch JOB``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from models.dgl_engine.job import Job
from models.dgl_engine.machines import INSIDE, Machines, address

ROOT = Path(__file__).resolve().parents[2]


def run(job: Job) -> dict:
    """Cut the graph, and train: what servers and trainers told, as plain values.

    Raises RuntimeError with the end of a log where a process fails, and where all have not ended in time.
    """
    path = job.write()
    environment = os.environ | job.environment()
    with (job.path / "store.log").open("w") as log:
        _of([sys.executable, "-m", "models.dgl_engine.store", str(path)], log, environment, job)
    hosts = [address(m) for m in range(job.machines)] if job.separate else ["127.0.0.1"]
    (job.path / "ip_config.txt").write_text("".join(f"{host} {job.port + 1}\n" for host in hosts), encoding="utf-8")
    with (job.path / "launch.log").open("w") as log:
        inside = INSIDE if job.separate else []
        _of([*inside, sys.executable, "-m", "models.dgl_engine.launch", str(path)], log, environment, job)
    told = {
        kind: [json.loads((job.path / f"{kind}{each}.json").read_text()) for each in range(count)]
        for kind, count in (("trainer", job.world), ("server", job.machines))
    }
    sent = job.path / "sent.json"
    return told | {"sent": json.loads(sent.read_text()) if job.separate else None}


def _of(command: list[str], log, environment: dict[str, str], job: Job) -> None:
    try:
        done = subprocess.run(
            command, stdout=log, stderr=log, env=environment, cwd=ROOT, timeout=job.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{command[-2]} has not ended in {job.timeout:g} s; {_end(Path(log.name))}") from None
    if done.returncode:
        raise RuntimeError(f"{command[-2]} has failed; {_end(Path(log.name))}")


def _end(log: Path) -> str:
    return f"the end of {log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:])


def supervise(job: Job, path: str) -> int:
    """Start a server and trainers on each machine; the first that fails ends all. Returns the exit status."""
    made = Machines(job.machines) if job.separate else None
    started: dict[str, subprocess.Popen] = {}

    def start(kind: str, number: int, machine: int) -> None:
        prefix = made.command(machine) if made else []
        with (job.path / f"{kind}{number}.log").open("w") as log:
            command = [*prefix, sys.executable, "-m", f"models.dgl_engine.{kind}", path, str(number)]
            started[f"{kind}{number}"] = subprocess.Popen(command, stdout=log, stderr=log)

    try:
        for machine in range(job.machines):
            start("server", machine, machine)
        for rank in range(job.world):
            start("trainer", rank, rank // job.trainers)
        while started:
            time.sleep(0.2)
            for name, process in list(started.items()):
                status = process.poll()
                if status:
                    print(f"{name} ended with {status}; {_end(job.path / f'{name}.log')}", file=sys.stderr)
                    return 1
                if status == 0:
                    del started[name]
        if made:
            sent = [made.sent(machine) for machine in range(job.machines)]
            (job.path / "sent.json").write_text(json.dumps(sent), encoding="utf-8")
        return 0
    finally:
        for process in started.values():
            process.kill()
            process.wait()


if __name__ == "__main__":
    raise SystemExit(supervise(Job.read(sys.argv[1]), sys.argv[1]))
