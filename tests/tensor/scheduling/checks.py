"""Whether what comes out of a case is what PyTorch computes of dense operands in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.compiler import Program, interpret, run_loops, stage3
from gnn_sparse_backend.compiler.cache.bounded import KernelCache
from gnn_sparse_backend.compiler.schedules.sequence import is_for_gpu
from gnn_sparse_backend.tensor.evaluation import arrays_of
from gnn_sparse_backend.tensor.expressions import kernel as expressions_kernel
from gnn_sparse_backend.tensor.expressions.kernel import TensorKernel
from gnn_sparse_backend.tensor.running import run
from gnn_sparse_backend.tensor.scheduling.assembled import AssembledStatement
from gnn_sparse_backend.tensor.scheduling.statement import Statement
from gnn_sparse_backend.tensor.storage.format import as_format
from gnn_sparse_backend.tensor.storage.stored import Stored
from tests.tensor.dense_values import EXACT, Near, functions
from tests.tensor.scheduling.cases import FOR_PYTHON, Case, Command, Operand

IN_WORDS = (st.NotationError, st.FormatError, st.ScheduleError, NotImplementedError)
"""What is raised for expressions that are not taken; CoIterationError is of the last kind."""


class Refused(Exception):
    """A case whose expression is not taken, with the reason."""


def apply(made: Statement, command: Command) -> Statement:
    """The statement after a command. Raises ScheduleError where it is not legal."""
    name, *given = command
    done: Statement = getattr(made, name)(*given)
    return done


def in_numpy(names: Sequence[str], arguments: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a kernel by name, sharing memory but for bfloat16, which NumPy has not."""
    return {
        name: np.asarray(x.float() if isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 else x)
        if isinstance(x, torch.Tensor)
        else x
        for name, x in zip(names, arguments, strict=True)
    }


@dataclass
class Stage:
    """Runs a program as a kernel would, by an interpreter: of stage I, or of the loops of stage III."""

    made: Statement
    loops: bool = False
    runs: int = field(default=0)

    def __call__(self, *arguments: Any) -> None:
        program = self.made.program
        given = in_numpy(program.parameter_names, arguments)
        if self.loops:
            function = stage3(program, self.made.schedule, serial=is_for_gpu(self.made.schedule))
            found = run_loops(function, given)
        else:
            found = interpret(program, given)
        result = program.buffer(self.made.source.notation.result.name).name
        given[result][...] = found[result]


@contextmanager
def by(stage: str) -> Iterator[None]:
    """Kernels of expressions are interpreted at this stage; compiled, if it is "kernel"."""

    def kernel(program: Program, schedule: Any) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            given = in_numpy(program.parameter_names, arguments)
            found_of = run_loops(stage3(program, schedule), given) if stage == "stage3" else interpret(program, given)
            for name, found in found_of.items():
                given[name][...] = found

        return run

    if stage == "kernel":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expressions_kernel, "compile_program", kernel)
        patch.setattr(expressions_kernel, "_plans", KernelCache("interpreted"))
        yield


def interpreted(made: AssembledStatement, loops: bool = False) -> TensorKernel:
    """The kernel of a statement whose programs, the one that counts and the one that fills, are interpreted; loops: at
    stage III."""
    with by("stage3" if loops else "stage1"):
        return made.kernel()


def check(case: Case, how: Sequence[str] = ("stage1",)) -> int:
    """Compare what comes out with what PyTorch computes, after the commands that are legal; gives how many are not.

    how: "stage1" and "stage3" interpret these stages, "kernel" compiles. Raises Refused for an expression that is not
    taken.
    """
    if case.way == "schedule":
        return _check_schedule(case, how)
    for stage in how:
        operands = case.made()
        given = {name: each.passed for name, each in operands.items()}
        with by(stage), np.errstate(all="ignore"):
            try:
                found = _unscheduled(case, given)
            except IN_WORDS as error:
                raise Refused(str(error)) from error
            except ValueError as error:
                if "is not repeated along a mode" not in str(error):
                    raise
                raise Refused(str(error)) from error
            compare(case, found, operands, f"{stage} of {case}")
    return 0


def _unscheduled(case: Case, given: dict[str, Any]) -> st.Array:
    if case.way == "einsum":
        subscripts, names = case.subscripts
        return st.einsum(subscripts, *(given[name] for name in names), format=case.wanted)
    if case.way == "operators":
        found: st.Array = eval(case.python, {**FOR_PYTHON, **given})
        return found
    return st.evaluate(case.expression, format=case.wanted, **given)


def _check_schedule(case: Case, how: Sequence[str]) -> int:
    operands = case.made()
    given, refused = {name: each.passed for name, each in operands.items()}, 0
    try:
        made = st.statement(case.expression, format=case.wanted, **given)
    except IN_WORDS as error:
        raise Refused(str(error)) from error
    for command in case.commands:
        try:
            made = apply(made, command)
        except st.ScheduleError:
            refused += 1
    arrays = arrays_of(made.source.notation, given)
    for stage in how:
        if isinstance(made, AssembledStatement):
            kernel = made.kernel() if stage == "kernel" else interpreted(made, stage == "stage3")
        elif stage == "kernel":
            kernel = made.kernel(serial=is_for_gpu(made.schedule))
        else:
            kernel = made._of(Stage(made, stage == "stage3"))
        try:
            with by(stage):
                found = run(kernel, arrays)
        except ValueError as error:
            if ("bound(" in str(error) or "was compiled for" in str(error)) and is_true(case, made) is not True:
                return refused
            raise
        except NotImplementedError as error:
            if not case.gradient:
                raise
            raise Refused(str(error)) from error
        assert is_true(case, made) is not False, f"a bound that is not true was not caught: {case}"
        with by(stage):
            compare(case, found, operands, f"{stage} of {case}\n{made}\n{made.program.script()}")
        if isinstance(made, AssembledStatement) and not case.gradient:
            assert ascends(kernel.computed(arrays)), f"coordinates of a row are not in order: {case}"
    return refused


def compare(case: Case, found: Stored, operands: dict[str, Operand], message: str) -> None:
    """Hold a result, its type and format, and the gradients that are asked for, against those of PyTorch."""
    leaves = {name: each for name, each in operands.items() if each.leaf is not None}
    dense = {name: torch.from_numpy(x) for name, x in case.operands().items()}
    for name in leaves:
        dense[name].requires_grad_()
    near = case.near(dense)
    if case.way != "operators":
        assert found.dtype == case.dtype, f"{found.dtype} for {case.dtype}: {message}"
        assert case.wanted is None or found.format == as_format(case.wanted, found.ndim), message
    assert ascends(found), f"coordinates are not in order: {message}"
    want, values = near.value, found.to_torch()
    dtype = values.dtype
    if dtype.is_floating_point:
        rounded = want.detach().to(dtype).double()
        off = near.off + (torch.finfo(dtype).eps * want.detach().abs() if near.off.any() else 0)
    else:
        rounded, off = want.detach().long().to(dtype).double(), near.off
    mine = values.detach().double()
    assert mine.shape == want.shape, message
    right = (mine == rounded) | ((mine - want.detach()).abs() <= off) | (mine.isnan() & rounded.isnan())
    assert right.all(), f"{mine.tolist()} for {rounded.tolist()}: {message}"
    if leaves and values.requires_grad:
        _compare_gradients(values, near, leaves, dense, functions(case.expression) <= set(EXACT), message)


def _compare_gradients(
    values: torch.Tensor,
    near: Near,
    leaves: dict[str, Operand],
    dense: dict[str, torch.Tensor],
    exact: bool,
    message: str,
) -> None:
    weight = torch.from_numpy(np.random.default_rng(5).integers(-2, 3, tuple(near.value.shape)).astype(np.float64))
    mine = torch.autograd.grad(  # operands are those of all stages
        (values * weight.to(values.dtype)).sum(),
        [each.leaf for each in leaves.values()],
        retain_graph=True,
        allow_unused=True,
    )
    wanted = torch.autograd.grad(
        (near.value * weight).sum(), [dense[name] for name in leaves], allow_unused=True, materialize_grads=True
    )
    for (name, each), found, want in zip(leaves.items(), mine, wanted):
        assert each.leaf is not None and each.part is not None
        want = each.part(want)
        found = torch.zeros_like(want) if found is None else found.double()
        unit = max(near.unit, torch.finfo(each.leaf.dtype).eps)
        # where y is near 1, 1 - y * y has no more digits than y has; what is added up is of size 1 or more
        scale = 16 + want.abs().sum() + 4 * (near.size * weight.abs()).sum()
        off = 0 if exact else 256 * unit * scale
        right = (found == want) | ((found - want).abs() <= off) | (found.isnan() & want.isnan())
        assert right.all(), f"gradient of {name}, {found.tolist()} for {want.tolist()}: {message}"


def ascends(found: Stored) -> bool:
    """Whether the coordinates under each element of a compressed level ascend, and occur once."""
    for level in found.structure.levels:
        if level.kind == "compressed":
            offsets, indices = np.asarray(level.offsets), np.asarray(level.indices)
            rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            if not np.all((np.diff(rows) > 0) | (np.diff(indices) > 0)):
                return False
    return True


def is_true(case: Case, made: Statement) -> bool | None:
    """Whether what was said of extents is true; None where that takes more than the extents of indices."""
    found: bool | None = True
    for promise in made._promises():
        size, said = case.sizes.get(promise.bound.of), promise.bound
        if size is None:
            found = None
        elif size > said.extent or (said.kind == "exact" and size != said.extent):
            return False
    return found
