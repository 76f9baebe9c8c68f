"""One program, with or without the backend, for some steps of its optimiser: ``python -m benchmarks.programs.run``.

Steps are counted where the program makes them. The first are not timed; behind the last one the program ends. Printed
is a line of JSON: seconds of a step, and the last loss that was backpropagated.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.programs import stand_ins
from benchmarks.support import cli


class _Over(BaseException):
    """The program has made its steps."""


def main(framework: str, script: str, ours: bool, warm: int, steps: int) -> dict:
    cli.quiet_libraries()
    torch.manual_seed(0)
    (stand_ins.install_pyg if framework == "pyg" else stand_ins.install_dgl)()
    if ours:
        import gnn_sparse_backend as gsb

        gsb.enable(framework)
    begun, made, loss = [], 0, None
    backward = torch.Tensor.backward

    def noted(self, *args, **kwargs):
        nonlocal loss
        loss = self.detach()
        return backward(self, *args, **kwargs)

    def after(optimiser, args, kwargs):
        nonlocal made
        made += 1
        if made == warm:
            begun.append(time.perf_counter())
        elif made == warm + steps:
            begun.append(time.perf_counter())
            raise _Over

    torch.Tensor.backward = noted
    register_optimizer_step_post_hook(after)
    os.chdir(Path(script).parent)
    sys.argv, sys.path[0] = [script], str(Path(script).parent)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(_Over):
        runpy.run_path(script, run_name="__main__")
    if len(begun) < 2:
        raise SystemExit(f"only {made} steps")
    return {"seconds": (begun[1] - begun[0]) / steps, "loss": None if loss is None else float(loss)}


if __name__ == "__main__":
    found = main(sys.argv[1], sys.argv[2], sys.argv[3] == "ours", int(sys.argv[4]), int(sys.argv[5]))
    print(json.dumps(found))
