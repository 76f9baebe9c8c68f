"""What all benchmarks share at their start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

STARTS_A_PROCESS = """
import argparse, time
from benchmarks.support import cli, memory

if __name__ == "__main__":
    cli.start(argparse.Namespace(threads=1))
    print("started", flush=True)
    memory.in_child(time.sleep, 100)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_benchmark_that_is_stopped_leaves_no_process_behind(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STARTS_A_PROCESS)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as running:
        assert running.stdout.readline() == "started\n"
        children: list[psutil.Process] = []
        deadline = time.monotonic() + 300
        while not children and time.monotonic() < deadline:
            time.sleep(0.1)
            children = psutil.Process(running.pid).children(recursive=True)
        assert children
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 128 + signal.SIGTERM
    assert not psutil.wait_procs(children, timeout=30)[1]
