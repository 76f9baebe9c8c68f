"""A case under ``torch.compile`` while the backend is on: what ran on our kernels, and in how many programs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.traced.walk import put_operators
from tests.coverage.report import Case, Outcome, run_case

REST = "aot_eager"
"""What compiles the rest: AOTAutograd, forward and backward. What Inductor makes of that has no part in what runs on
our kernels."""


@dataclass(frozen=True)
class Compiled:
    """What a compiled case did. ``str()`` is the cell of the table.

    outcome: None where PyTorch cannot compile the case, without the backend either. programs: that it made.
    whole: whether that is one, without a break.
    """

    outcome: Outcome | None
    programs: int = 0
    whole: bool = False

    def __str__(self) -> str:
        if self.outcome is None:
            return "not compiled by PyTorch"
        rest = [f"{reason} ({calls})" for reason, calls in self.outcome.fallbacks.items()]
        made = "one" if self.whole else "none" if not self.programs else f"{self.programs}"
        return "; ".join([f"{self.outcome.ours} ({made})", *rest])


def run_compiled(framework: str, case: Case, seed: int = 0) -> Compiled:
    """`run_case` of the compiled case, with the backend on. Raises what goes wrong with it alone."""
    made: list[torch.fx.GraphModule] = []
    compile_rest = lookup_backend(REST)

    def backend(program, inputs, **given):
        made.append(program)
        if put_operators(program.graph, framework):
            program.recompile()
        return compile_rest(program, inputs, **given)

    try:
        with gsb.enabled(framework):
            counters.clear()
            outcome = _run(framework, case, backend, seed)
    except Exception:
        if _runs(framework, case, seed):
            raise
        return Compiled(None)
    return Compiled(outcome, len(made), len(made) == 1 and not counters["graph_break"])


def run_without(framework: str, case: Case, seed: int = 0) -> Outcome:
    """The case as PyTorch compiles it where nothing of ours is on. Raises what goes wrong."""
    gsb.disable()
    return _run(framework, case, REST, seed)


def _runs(framework: str, case: Case, seed: int) -> bool:
    """Whether PyTorch compiles a case where nothing of ours is on."""
    try:
        run_without(framework, case, seed)
    except Exception:
        return False
    return True


def _run(framework: str, case: Case, backend, seed: int) -> Outcome:
    torch._dynamo.reset()
    try:
        call = torch.compile(case.call, backend=backend)
        return run_case(framework, Case(case.name, case.build, call, case.note, case.dtypes), seed)
    finally:
        torch._dynamo.reset()
