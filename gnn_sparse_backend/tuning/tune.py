"""Times plans of one task on the graph at hand, in turns, until the time is over or one is clearly the fastest."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import torch

from ..compiler.codegen import BuildError
from ..ops.core.plans import planned, problem_of
from ..ops.message.executables.blocks_cuda import dense_blocks
from ..planner.candidates import trials
from ..planner.cpu.rows import CpuPlan
from ..planner.cuda.blocks import BlockPlan, may_fill_blocks
from ..planner.cuda.rows import PART
from ..planner.cuda.tensor_cores import block_of
from ..planner.plan import Plan
from ..planner.problem import CudaProblem, Problem
from ..runtime.precision import on_tensor_cores
from ..runtime.timers import Timer, timer_of
from ..runtime.type_names import type_name
from ..structures.graph import Graph
from .precompile_steps import Step
from .tuning_tasks import Task

# A sample repeats a short call until it lasts about this long.
SAMPLE_SECONDS = 2e-4
# Enough rounds to tell plans apart that differ by a few percent, and the least before any is dropped.
MOST_ROUNDS, FEWEST_ROUNDS = 25, 3
# A plan this much slower than the fastest needs no more samples.
HOPELESS = 1.3
# Bytes of the operands of steps that run side by side. One larger step runs alone.
TOGETHER = 1 << 30


def problem_of_task(task: Task) -> Problem:
    """What the planner is told. On a GPU that takes a look at the blocks of the graph, where they may pay: it makes
    them.
    """
    problem = problem_of(task.graph, task.kind, task.features, task.dtype)
    if type(problem) is not CudaProblem or not may_fill_blocks(problem) or not on_tensor_cores(task.dtype):
        return problem
    blocks = dense_blocks(task.graph, block_of(type_name(task.dtype)))
    counted, stored = replace(problem, in_bsr=blocks.in_bsr, in_sr_bcrs=blocks.in_sr_bcrs), blocks.stored
    if stored is None or (blocks.shared and len(task.message_op.places) > 1):  # the numbers of one slot have no order
        return counted
    return replace(counted, slots=stored.num_slots)


def time_plans(
    task: Task,
    plans: Iterable[Plan],
    deadline: float,
    clock: Callable[[], float] = time.perf_counter,
    rounds: int = MOST_ROUNDS,
    timer: Timer | None = None,
    hopeless: float = HOPELESS,
) -> dict[Plan, float]:
    """Seconds of a call by plan, in the order given; those plans alone that could be started before the deadline, the
    first one always. The least of a plan's samples counts, for a disturbance only adds.

    All plans have a turn in each of at most ``rounds`` rounds, so that a disturbance falls on all of them; the first
    round comes after each has run twice, and is never cut short. hopeless: a plan slower than this multiple of the
    fastest has no more turns after `FEWEST_ROUNDS`. timer: takes the time, by default that of the device, by `clock` on
    a CPU.
    A plan but the first whose kernels do not compile, or that takes more memory than there is, is left out.
    KeyboardInterrupt goes through.
    """
    run = task.runner()
    timer = timer_of(task.graph.device, clock) if timer is None else timer
    samples: dict[Plan, list[float]] = {}
    calls: dict[Plan, int] = {}
    active = list(plans)

    def sample(plan: Plan, count: int) -> float:
        with planned(task.graph, task.kind, task.features, task.dtype, plan):
            return timer(run, count)

    for plan in list(active):
        if calls and clock() >= deadline:
            active.remove(plan)
            continue
        try:
            sample(plan, 1)  # may compile, make formats, and touches memory for the first time
        except (BuildError, torch.cuda.OutOfMemoryError):
            if not calls:
                raise
            active.remove(plan)
            continue
        calls[plan] = max(1, min(1000, int(SAMPLE_SECONDS / max(sample(plan, 1), 1e-9))))
        samples[plan] = []
    for turn in range(rounds):
        for plan in active[turn % len(active) :] + active[: turn % len(active)]:
            if turn and clock() >= deadline:
                break
            samples[plan].append(sample(plan, calls[plan]))
        if turn >= FEWEST_ROUNDS:
            fastest = min(min(samples[plan]) for plan in active)
            active = [plan for plan in active if min(samples[plan]) <= hopeless * fastest]
            if len(active) == 1:
                break
        if clock() >= deadline:
            break
    return {plan: min(taken) for plan, taken in samples.items()}


def compile_plans(
    tasks: Iterable[Task | Step],
    deadline: float,
    done: Callable[[Task | Step], None] = lambda task: None,
    clock: Callable[[], float] = time.perf_counter,
    plans: Callable[[Problem], Iterable[Plan]] = trials,
) -> None:
    """Compile what the candidates of the tasks run, and what steps run, several at a time; stops starting more at the
    deadline.
    plans: the candidates of a problem. done: is told of each that was compiled.

    A kernel knows nothing of the size of a graph: one edge is enough to have it compiled, or on a GPU a row that is cut
    if rows of the graph are. Blocks on Tensor Cores are compiled when they first run. Which kernels a step runs depends
    on its whole structure, so it runs there, as many at a time as ``TOGETHER`` allows.
    """
    wanted, steps = {}, []
    for task in tasks:
        if isinstance(task, Step):
            steps.append(task)
            continue
        problem = problem_of_task(task)
        for plan in plans(problem):
            plan = plan.rest if isinstance(plan, BlockPlan) else plan
            edges = max(1, min(PART + 1, problem.longest)) if type(problem) is CudaProblem else 1
            kernel = replace(plan, groups=min(plan.groups, 2)) if isinstance(plan, CpuPlan) else plan
            key = task.op, task.direction, task.features, task.dtype, task.graph.indices.dtype, kernel
            wanted.setdefault(key, (task, plan, edges))

    def compile_one(task: Task, plan: Plan, edges: int) -> None:
        if clock() >= deadline:
            return
        row = Graph._of_one_row(edges, task.graph.indices)
        small = Task(task.op, task.direction, row, task.features, task.dtype)
        with planned(row, task.kind, task.features, task.dtype, plan), contextlib.suppress(BuildError):
            small.runner()()  # what does not compile is met again where it is timed
        done(task)

    room = _Room(TOGETHER)

    def run_one(step: Step) -> None:
        with room.of(step.size):
            if clock() >= deadline:
                return
            step.run()
        done(step)

    with ThreadPoolExecutor(max_workers=max(1, torch.get_num_threads()), thread_name_prefix="gsb-compile") as pool:
        try:
            futures = [pool.submit(run_one, step) for step in steps]
            futures += [pool.submit(compile_one, *each) for each in wanted.values()]
            for future in wait(futures).done:
                future.result()
        except BaseException:
            deadline = float("-inf")  # of those that wait for room
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Room:
    """Bytes that threads share: each waits until what it needs is free, or all of it."""

    def __init__(self, most: int):
        self._most, self._taken, self._changed = most, 0, threading.Condition()

    @contextlib.contextmanager
    def of(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + size <= self._most)
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()
