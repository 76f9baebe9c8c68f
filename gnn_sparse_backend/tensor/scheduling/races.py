"""Whether loops that run at once write the same places, and what settles it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...frozen import dataclass
from ..expressions.loops.loops import Loop
from ..expressions.loops.provenance import above
from ..expressions.notation import Access
from .commands import GPU, refuse
from .nest import Assign, Nest, Where


@dataclass(frozen=True)
class Asked:
    """What of a statement decides.

    Attributes:
        result: its name.
        kept: it has an element for each of an operand's, so repeated coordinates do not meet.
        repeats: whether an operand may store elements at one coordinate several times.
    """

    result: str
    kept: bool
    repeats: Callable[[Access], bool]


def check(nests: Sequence[Nest], asked: Asked) -> None:
    """Raise ScheduleError unless every loop on a unit may be there."""
    units = {loop.unit for nest in nests for each in nest.nests() for loop in each.loops}
    if "threads" in units and units & set(GPU):
        refuse(
            "parallelize", f"loops are on threads of the CPU and on {', '.join(units & set(GPU))} of a GPU; choose one"
        )
    for nest in nests:
        for each in nest.nests():
            _gpu(each, outermost=each is nest)
            _inside(each, nest)
        _races(nest, True, asked)


def _command(loop: Loop) -> str:
    return f"parallelize({loop.name}, {loop.unit!r}, {loop.race!r})"


def _gpu(nest: Nest, outermost: bool) -> None:
    on_gpu = [(n, loop) for n, loop in enumerate(nest.loops) if loop.unit in GPU]
    order = [GPU.index(loop.unit) for _, loop in on_gpu]
    for n, loop in on_gpu:
        if not outermost or (loop.unit == "block" and n > 0):
            where = "outside of workspaces" if not outermost else "the outermost one"
            refuse(_command(loop), f"a loop on {loop.unit} is {where}; reorder the loops")
    if order != sorted(set(order)) or (order and order[0] != 0):
        loops = ", ".join(f"{loop.name} on {loop.unit}" for _, loop in on_gpu)
        refuse(_command(on_gpu[-1][1]), f"a block is around its warps, a warp around its threads, not {loops}")


def _inside(nest: Nest, top: Nest) -> None:
    threads = [loop for each in top.nests() for loop in each.loops if loop.unit == "threads"]
    own = [loop for loop in nest.loops if loop.unit == "threads"]
    inner = [loop for part in nest.parts for each in part.nests() for loop in each.loops if loop.unit == "threads"]
    if own and len(own) + len(inner) > 1:
        refuse(_command(threads[-1]), f"it is inside of the loop over {own[0].name}, which is on threads already")
    for n, loop in enumerate(nest.loops):
        if loop.unit == "lanes" and (n < len(nest.loops) - 1 or not isinstance(nest.body, Assign)):
            refuse(_command(loop), f"there are loops inside of that over {loop.name}; only the innermost runs in lanes")


def _races(nest: Nest, is_top: bool, asked: Asked) -> None:
    for n, loop in enumerate(nest.loops):
        if loop.unit in ("", "unrolled"):
            continue
        for each in nest.nests():
            if isinstance(each.body, Assign) and not _is_made_inside(each.body.target.name, nest):
                _race(loop, n, nest, each, each.body, is_top, asked)
    for part in nest.parts:
        _races(part, False, asked)


def _is_made_inside(name: str, nest: Nest) -> bool:
    return any(isinstance(each.body, Where) and each.body.workspace.name == name for each in nest.nests())


def _race(loop: Loop, n: int, nest: Nest, inner: Nest, assign: Assign, is_top: bool, asked: Asked) -> None:
    command, target = _command(loop), assign.target
    indices = set(above(inner.graph, loop.name, target.indices))
    shared = sorted(indices - set(target.indices))
    twice = [a for a in assign.term.accesses if asked.repeats(a) and indices & set(a.indices)] if not asked.kept else []
    if loop.race == "temporary" and (loop.unit != "threads" or not is_top or target.name != asked.result):
        refuse(command, "a copy of the result for each element is for threads of the CPU, outside of workspaces")
    if not shared and not twice:
        if loop.race in ("temporary", "parallel_reduction"):
            refuse(command, f"nothing is summed over {loop.name}: each of its elements has its own {target}")
        return
    why = f"{', '.join(shared)} is summed over" if shared else f"coordinates of {twice[0].name} may repeat"
    if loop.race == "none":
        ways = "'parallel_reduction'" if loop.unit == "lanes" else "'atomics', 'temporary' or 'parallel_reduction'"
        refuse(command, f"elements of {loop.name} add to the same {target}, as {why}; choose {ways}, or another loop")
    if loop.race == "atomics":
        if loop.unit == "lanes":
            refuse(command, "lanes have no atomic additions; choose 'parallel_reduction'")
        if target.name != asked.result:
            refuse(
                command,
                f"{target.name} is a workspace; atomics are for {asked.result}; choose another loop",
            )
    if loop.race == "parallel_reduction":
        if loop.unit in ("block", "warp"):
            refuse(command, f"each {loop.unit} of a GPU adds by 'atomics'; the threads of a warp add by shuffles")
        if inner is not nest:
            refuse(command, f"{target.name} is written in a nest inside of {loop.name}; choose a loop of that")
        parts = [(each.name, set(above(inner.graph, each.name, target.indices))) for each in nest.loops[n:]]
        later = [name for name, found in parts if found & set(target.indices)]
        if later:
            refuse(
                command,
                f"{target} is settled only inside, by {', '.join(later)}; reorder so that it is settled outside of "
                f"{loop.name}, or choose 'atomics' or 'temporary'",
            )
