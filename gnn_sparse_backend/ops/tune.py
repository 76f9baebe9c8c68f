"""Times plans of one task on the graph at hand, in turns, until the time is over or one is clearly the fastest."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait

import torch

from ..planner.candidates import trials
from ..planner.plan import Plan
from .graph import Graph
from .plans import planned, problem_of
from .tunable import Task

# A sample repeats a short call until it lasts about this long.
SAMPLE_SECONDS = 2e-4
# Enough rounds to tell plans apart that differ by a few percent, and the least before any is dropped.
MOST_ROUNDS, FEWEST_ROUNDS = 25, 3
# A plan this much slower than the fastest needs no more samples.
HOPELESS = 1.3


def problem_of_task(task: Task):
    return problem_of(task.graph, task.kind, task.features, task.dtype.itemsize)


def time_plans(task: Task, plans: Iterable[Plan], deadline: float, clock: Callable[[], float] = time.perf_counter,
               rounds: int = MOST_ROUNDS) -> dict[Plan, float]:
    """Seconds of a call by plan, in the order given; those plans alone that could be started before the deadline, the first
    one always. Of a plan's samples the least counts, for a disturbance only adds.

    All plans have a turn in each of at most so many rounds, so that a disturbance falls on all of them; the first round comes
    after each has run twice, and is never cut short.
    KeyboardInterrupt goes through.
    """
    run = task.runner()
    samples: dict[Plan, list[float]] = {}
    calls: dict[Plan, int] = {}
    active = list(plans)

    def sample(plan: Plan, count: int) -> float:
        with planned(task.graph, task.kind, task.features, task.dtype.itemsize, plan):
            begin = clock()
            for _ in range(count):
                run()
            return (clock() - begin) / count

    for plan in list(active):
        if calls and clock() >= deadline:
            active.remove(plan)
            continue
        sample(plan, 1)  # may compile, and touches memory for the first time
        calls[plan] = max(1, min(1000, int(SAMPLE_SECONDS / max(sample(plan, 1), 1e-9))))
        samples[plan] = []
    for turn in range(rounds):
        for plan in active[turn % len(active):] + active[:turn % len(active)]:
            if turn and clock() >= deadline:
                break
            samples[plan].append(sample(plan, calls[plan]))
        if turn >= FEWEST_ROUNDS:
            fastest = min(min(samples[plan]) for plan in active)
            active = [plan for plan in active if min(samples[plan]) <= HOPELESS * fastest]
            if len(active) == 1:
                break
        if clock() >= deadline:
            break
    return {plan: min(taken) for plan, taken in samples.items()}


def compile_plans(tasks: Iterable[Task], deadline: float, done: Callable[[], None] = lambda: None,
                  clock: Callable[[], float] = time.perf_counter) -> None:
    """Compile what the candidates of the tasks run, several at a time; stops starting more at the deadline.

    A kernel knows nothing of the size of a graph: one edge is enough to have it compiled.
    """
    wanted = {}
    for task in tasks:
        if task.graph.indices.dtype != torch.int32:
            continue
        problem = problem_of_task(task)
        for plan in trials(problem):
            static = plan.groups > 1, plan.prefetch, plan.reduction
            wanted.setdefault((task.op, task.direction, task.features, task.dtype, static), (task, plan))

    def compile_one(task: Task, plan: Plan) -> None:
        if clock() >= deadline:
            return
        edge = Graph.from_coo(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), (1, 1))
        small = Task(task.op, task.direction, edge, task.features, task.dtype)
        with planned(edge, task.kind, task.features, task.dtype.itemsize, plan):
            small.runner()()
        done()

    with ThreadPoolExecutor(max_workers=max(1, torch.get_num_threads()), thread_name_prefix="gsb-compile") as pool:
        try:
            futures = [pool.submit(compile_one, *each) for each in wanted.values()]
            for future in wait(futures).done:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
