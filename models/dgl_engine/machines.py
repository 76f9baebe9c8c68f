"""Machines made of network namespaces: each has an address, a loopback and a shared memory of its own.

DGL's client finds the machine that it runs on by the addresses of its interfaces, and names its shared memory by the
graph alone, so that two machines need both of their own. A user namespace around all of them asks for no rights, and
nothing is left when its first process ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

INSIDE = [
    *("unshare", "--user", "--map-root-user", "--net", "--mount"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
]
"""What a command begins with that may make machines; all that it starts ends with it."""
INTERFACE = "eth0"
_OF_ITS_OWN = ["unshare", "--net", "--mount"]
_SHARED_MEMORY = "mount -t tmpfs tmpfs /dev/shm"
_TRIAL = f"{_SHARED_MEMORY} && ip link add hub type bridge && ip link add port0 type veth peer name port1 && "


def why_not() -> str | None:
    """Why this computer allows no such machines, in words; None where it does."""
    missing = [tool for tool in ("unshare", "nsenter", "ip", "mount") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found"
    done = subprocess.run(
        [*INSIDE, "sh", "-c", _TRIAL + " ".join(_OF_ITS_OWN) + " true"], capture_output=True, text=True, timeout=60
    )
    return None if done.returncode == 0 else done.stderr.strip() or f"unshare ended with {done.returncode}"


def address(machine: int) -> str:
    return f"10.77.0.{machine + 1}"


class Machines:
    """So many machines on one switch. Belongs into a process that was started by ``INSIDE``."""

    def __init__(self, count: int) -> None:
        self._held = [_held() for _ in range(count)]
        _run("ip", "link", "add", "hub", "type", "bridge")
        _run("ip", "link", "set", "hub", "up")
        for machine in range(count):
            port, pid = f"port{machine}", str(self._held[machine].pid)
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", pid)
            _run("ip", "link", "set", port, "master", "hub", "up")
            _run(*self.command(machine), "sh", "-c", _SHARED_MEMORY)
            _run(*self.command(machine), "ip", "link", "set", "lo", "up")
            _run(*self.command(machine), "ip", "addr", "add", f"{address(machine)}/24", "dev", INTERFACE)
            _run(*self.command(machine), "ip", "link", "set", INTERFACE, "up")

    def command(self, machine: int) -> list[str]:
        """What a command begins with that runs on this machine."""
        return ["nsenter", "--target", str(self._held[machine].pid), "--net", "--mount", "--wd"]

    def sent(self, machine: int) -> int:
        """Bytes that the machine has sent to others."""
        lines = Path("/proc/self/net/dev").read_text().splitlines()
        received = {name.strip(): counts.split()[0] for name, _, counts in (line.partition(":") for line in lines[2:])}
        return int(received[f"port{machine}"])


def _held() -> subprocess.Popen:
    """A process that keeps namespaces alive, when it has them."""
    process = subprocess.Popen([*_OF_ITS_OWN, "sleep", "infinity"])
    mine, end = os.readlink("/proc/self/ns/mnt"), time.monotonic() + 10
    while os.readlink(f"/proc/{process.pid}/ns/mnt") == mine or "sleep" not in _name(process.pid):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{' '.join(_OF_ITS_OWN)} made no namespaces")
        time.sleep(0.01)
    return process


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
