"""``gsb.schedule``: kernels of an operator by a user's schedule."""

from __future__ import annotations

from typing import Any

from ..compiler.own_schedules import SCHEDULED, WHICH, OwnFunction, OwnSchedule
from ..runtime.type_names import check_dtype, type_name
from . import precompile_operators as precompile_operators  # imports every family, which says what it schedules


def schedule(operator: str, function: OwnFunction, **which: Any) -> OwnSchedule:
    """Let a function of yours schedule the kernels of an operator, in this process.

        def in_turns(schedule, kernel):
            return *schedule, unroll_and_jam("edges", 2)

        with gsb.schedule("sddmm", in_turns):
            y = gsb.sddmm(graph, u, v)

    ``function(schedule, kernel)`` is called once for each kernel that is wanted while it is in force, before anything
    runs. ``schedule`` is the sequence of steps that the planner's strategy applies, ``kernel`` a
    `compiler.own_schedules.KernelRequest`: the operator's names, type, width, reduction, device, and the program, whose
    iterations and buffers steps name. It returns a sequence of steps to use instead, with primitives of this package,
    of yours (`compiler.primitive`) or of TVM's in them; or None, for the one in force before, or the default. Steps of
    stage I may rewrite the program (`compiler.sparse_reorder` and others), but not its parameters.

    In force at once, in all threads, for calls, gradients, and what frameworks' functions run; until ``remove()`` or
    the end of a ``with`` block. Kernels are kept, in memory and on disk, by the program, the steps, and a digest of the
    function's code; never as the package's own. Changing what is in force costs the next call of each shape some
    milliseconds, even where its kernels are known. A plan that is chosen by measured times was measured with the
    package's kernels, and `precompile` measures nothing meanwhile.

    What is checked: that the steps apply, that the scheduled function is well formed, and that its parameters are
    those of the program. What a primitive of your own does to the meaning is yours to answer for: compare results, or
    `compiler.run_loops` of ``compiler.stage3(kernel.program, steps)`` with `compiler.interpret` of the program.

    Args:
        operator: ``"spmm"``, of sums, means, products and extrema of neighbours, weighted or not; one of these by its
            name in `explain`, as ``"weighted_sum"``; ``"aggregate"``, of any message; ``"sddmm"``; ``"edge_map"``;
            ``"attention"``, all three; ``"edge_softmax"``; on a CPU also ``"rgms"``, ``"segment_mm"`` or
            ``"gather_mm"``, which share kernels, and ``"sparse_conv"``.
        function: a Python function.
        which: only kernels of this ``dtype``, ``features``, ``reduce``, ``device`` ("cpu" or "cuda") or ``arch``.

    Returns:
        the schedule in force: a context manager, with ``remove()``.

    Raises:
        TypeError: the function is none, or none of Python's.
        ValueError: nothing is scheduled by this name, or ``which`` names what kernels have not.

    Where the function raises an error, or its steps do not apply, the call that wants the kernel raises StageIError,
    which quotes it; where it returns what is no schedule, TypeError.
    """
    if operator not in SCHEDULED:
        raise ValueError(f"unknown operator {operator!r}: choose from {', '.join(sorted(SCHEDULED))}")
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r:.80} of type {type(function).__name__}")
    unknown = [name for name in which if name not in WHICH]
    if unknown:
        raise ValueError(f"kernels are not told apart by {unknown[0]!r}: choose from {', '.join(WHICH)}")
    if "dtype" in which:
        which["dtype"] = type_name(check_dtype(which["dtype"]))
    return OwnSchedule(operator, function, which)
