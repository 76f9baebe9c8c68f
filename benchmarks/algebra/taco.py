"""The Tensor Algebra Compiler as a peer: its C, compiled by ``cc`` and called on NumPy's arrays.

Kjolstad et al., "The Tensor Algebra Compiler" (OOPSLA 2017); schedules by Senanayake et al. (OOPSLA 2020), section 8.
``GSB_TACO`` names the folder in which TACO was built. Of several schedules the fastest is taken.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.algebra.problem import Problem
from benchmarks.support.cells import Unable

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC", "-w")
_ROWS = "split(i,i0,i1,16),{},parallelize(i0,CPUThread,NoRaces)"
SCHEDULES: dict[str, tuple[str, ...]] = {
    "spmv": (_ROWS.format("reorder(i0,i1,j)"), "parallelize(i,CPUThread,NoRaces)"),
    "spmm": (
        _ROWS.format("pos(j,jpos,B),split(jpos,jpos0,jpos1,8),reorder(i0,i1,jpos0,r,jpos1)")
        + ",parallelize(r,CPUVector,IgnoreRaces)",
        _ROWS.format("reorder(i0,i1,j,r)"),
    ),
    # loops run on threads where the result is dense or can be inserted into, which these are not
    "sddmm": ("", "reorder(i,j,r),parallelize(r,CPUVector,ParallelReduction)"),
    "add": ("assemble(A,Insert),parallelize(i,CPUThread,NoRaces)", ""),
    "add3": ("assemble(A,Insert),parallelize(i,CPUThread,NoRaces)", ""),
    "multiply": ("assemble(A,Insert),parallelize(i,CPUThread,NoRaces)", ""),
    "spgemm": (
        "reorder(i,k,j),precompute(B(i,k)*C(k,j),j,j),assemble(A,Insert),parallelize(i,CPUThread,NoRaces)",
        "reorder(i,k,j),precompute(B(i,k)*C(k,j),j,j)",
    ),
    "ttv": ("",),
    "ttm": ("",),
    "mttkrp": (
        "split(i,i0,i1,16),reorder(i0,i1,j,k,r),precompute(B(i,j,k)*D(k,r),r,r),parallelize(i0,CPUThread,NoRaces)",
        "split(i,i0,i1,16),reorder(i0,i1,j,k,r),parallelize(i0,CPUThread,NoRaces)",
    ),
    "mttkrp4": ("split(i,i0,i1,16),reorder(i0,i1,j,k,l,r),parallelize(i0,CPUThread,NoRaces)",),
}
"""As the paper's section 8 and TACO's own tests have them."""


class _Tensor(ctypes.Structure):
    """``taco_tensor_t``."""

    _fields_ = [
        ("order", ctypes.c_int32),
        ("dimensions", ctypes.POINTER(ctypes.c_int32)),
        ("csize", ctypes.c_int32),
        ("mode_ordering", ctypes.POINTER(ctypes.c_int32)),
        ("mode_types", ctypes.POINTER(ctypes.c_int)),
        ("indices", ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))),
        ("vals", ctypes.c_void_p),
        ("fill_value", ctypes.c_void_p),
        ("vals_size", ctypes.c_int32),
    ]


class Operand:
    """A tensor as TACO's functions take it.

    format: of each mode ``d`` or ``s``. levels: (offsets, coordinates) of each compressed mode, missing where the
    function makes them.
    """

    def __init__(
        self,
        shape: Iterable[int],
        format: str,
        levels: Iterable[tuple[np.ndarray, np.ndarray]] = (),
        values: np.ndarray | None = None,
    ) -> None:
        order, given = len(format), iter(levels)
        self._dimensions = (ctypes.c_int32 * order)(*shape)
        self._ordering = (ctypes.c_int32 * order)(*range(order))
        self._types = (ctypes.c_int * order)(*("ds".index(kind) for kind in format))
        self._held: list[Any] = [values]
        self.modes = []
        for kind in format:
            pair = (ctypes.c_void_p * 2)()
            if kind == "s" and (arrays := next(given, None)) is not None:
                self._held.append(arrays)
                pair[0], pair[1] = (array.ctypes.data for array in arrays)
            self.modes.append(pair)
        self._indices = (ctypes.POINTER(ctypes.c_void_p) * order)(
            *(ctypes.cast(pair, ctypes.POINTER(ctypes.c_void_p)) for pair in self.modes)
        )
        self.values = values
        address = None if values is None else values.ctypes.data
        self.struct = _Tensor(order, self._dimensions, 32, self._ordering, self._types, self._indices, address, None, 0)


@dataclass(frozen=True)
class Built:
    """C of TACO, compiled. lines: of C, of the function. taco_s, cc_s: of TACO and of ``cc``; code_bytes: machine code;
    parameters: of the function, the result first.
    """

    library: ctypes.CDLL
    schedule: str
    lines: int
    taco_s: float
    cc_s: float
    code_bytes: int
    parameters: tuple[str, ...]


def tool() -> Path:
    """TACO's command. Raises Unable."""
    folder = os.environ.get("GSB_TACO")
    if not folder:
        raise Unable("GSB_TACO is not set: name the folder in which TACO was built")
    path = Path(folder) / "bin" / "taco"
    if not path.exists():
        raise Unable(f"{path} does not exist")
    return path


@cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="taco-")


@cache
def build(expression: str, formats: tuple[str, ...], schedule: str, function: str) -> Built:
    """The C of an expression in TACO's notation. formats: like ``A:ds``. Raises Unable where TACO refuses."""
    path = tool()
    key = hashlib.sha256(repr((expression, formats, schedule)).encode()).hexdigest()[:16]
    source, library = (Path(_folder().name) / f"{key}.{kind}" for kind in ("c", "so"))
    types = [f"-t={format.split(':')[0]}:float" for format in formats]
    given = [f"-f={format}" for format in formats if not format.endswith(":")]  # a number has no format
    command = [path, expression, *given, *types, f"-write-source={source}"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(path.parent.parent / "lib")}
    begin = time.perf_counter()
    told = subprocess.run(
        [*command, *([f"-s={schedule}"] if schedule else [])], env=environment, capture_output=True, text=True
    )
    if told.returncode or not source.exists():
        raise Unable(f"TACO refuses the schedule {schedule!r}: {(told.stdout + told.stderr).strip()[-200:]}")
    middle = time.perf_counter()
    told = subprocess.run(["cc", *FLAGS, source, "-o", library, "-lm"], capture_output=True, text=True)
    if told.returncode:
        raise Unable(f"the C of TACO for {expression} does not compile: {told.stderr.strip()[:200]}")
    end = time.perf_counter()
    text = source.read_text()
    body = text[text.index(f"int {function}(") :]
    return Built(
        ctypes.CDLL(str(library)),
        schedule,
        body[: body.index("\n}")].count("\n") + 2,
        middle - begin,
        end - middle,
        code_bytes(library),
        tuple(re.findall(r"\*(\w+)", body[: body.index(")")])),
    )


def code_bytes(library: Path) -> int:
    """Machine code in a library, in bytes."""
    told = subprocess.run(["size", library], capture_output=True, text=True, check=True).stdout.splitlines()[1]
    return int(told.split()[0])


@dataclass
class Call:
    """A function of TACO with its operands; ``in_our_order`` makes an answer of what it wrote."""

    built: Built
    function: Callable
    operands: list[Operand]
    in_our_order: Callable[[Any], Any]
    assembles: bool
    _addresses: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self._addresses = [ctypes.byref(operand.struct) for operand in self.operands]

    def __call__(self) -> Operand:
        result = self.operands[0]
        if self.assembles:  # what the last call allocated
            for address in (result.modes[1][0], result.modes[1][1], result.struct.vals):
                _libc().free(ctypes.c_void_p(address))
            result.modes[1][0] = result.modes[1][1] = result.struct.vals = None
        self.function(*self._addresses)
        return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def call_of(problem: Problem) -> Call:
    """The fastest of TACO's schedules. Raises Unable."""
    place = problem.place
    tool()
    name = "mttkrp4" if place.op == "mttkrp" and problem.input.order == 4 else place.op
    calls, refused = [], []
    for schedule in SCHEDULES[name]:
        try:
            calls.append(_call(problem, schedule))
        except Unable as reason:
            refused.append(str(reason))
    if not calls:
        raise Unable("; ".join(refused))
    return min(calls, key=_seconds) if len(calls) > 1 else calls[0]


def _seconds(call: Call) -> float:
    call()
    best = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def _call(problem: Problem, schedule: str) -> Call:
    place, given = problem.place, problem.input
    several = place.operation.matrices > 1
    function = "evaluate" if several else "compute"
    formats, operands, in_our_order = _several(problem) if several else _single(problem)
    expression = notation(place.expression)
    if place.op == "mttkrp" and given.order == 3:  # the innermost product first, so that it can be precomputed
        expression = "A(i,r)=B(i,j,k)*D(k,r)*C(j,r)"
        operands[2], operands[3] = operands[3], operands[2]
    built = build(expression, tuple(formats), schedule, function)
    return Call(built, getattr(built.library, function), operands, in_our_order, several)


def notation(expression: str) -> str:
    return expression.replace("[", "(").replace("]", ")").replace(" ", "")


def _of_csr(matrix: scipy.sparse.csr_matrix) -> Operand:
    return Operand(matrix.shape, "ds", [(matrix.indptr, matrix.indices)], matrix.data)


def _several(problem: Problem) -> tuple[list[str], list[Operand], Callable]:
    names = "BCD"[: problem.place.operation.matrices]
    shape = problem.wanted.shape

    def ordered(result: Operand) -> scipy.sparse.csr_matrix:
        offsets = read(result.modes[1][0], shape[0] + 1, np.int32)
        indices, values = (
            read(address, int(offsets[-1]), dtype)
            for address, dtype in ((result.modes[1][1], np.int32), (result.struct.vals, np.float32))
        )
        return scipy.sparse.csr_matrix((values, indices, offsets), shape)

    operands = [Operand(shape, "ds"), *(_of_csr(matrix) for matrix in problem.matrices)]
    return [f"{name}:ds" for name in "A" + names], operands, ordered


def read(address: int, count: int, dtype: type) -> np.ndarray:
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).copy()


def _single(problem: Problem) -> tuple[list[str], list[Operand], Callable]:
    place, given, factors = problem.place, problem.input, problem.factors
    names = [name for name in "CDE" if f"{name}[" in place.expression]
    if given.order == 2:
        matrix, format = _of_csr(given.csr), "ds"
    else:
        matrix, format = Operand(given.shape, "s" * given.order, given.levels, given.values), "s" * given.order
    out = np.zeros(problem.wanted.shape, np.float32)
    if place.op == "sddmm":
        result, kind = Operand(given.shape, "ds", [(given.csr.indptr, given.csr.indices)], out), "ds"
    elif place.op in ("ttv", "ttm"):
        kind = "s" * (given.order - 1) + "d" * (place.op == "ttm")
        shape = (*given.shape[:-1], *([place.width] * (place.op == "ttm")))
        result = Operand(shape, kind, given.levels[:-1], out)
    else:
        kind = "d" * out.ndim
        result = Operand(out.shape, kind, values=out)
    dense = [Operand(factor.shape, "d" * factor.ndim, values=factor) for factor in factors]
    formats = [f"A:{kind}", f"B:{format}", *(f"{name}:{'d' * f.ndim}" for name, f in zip(names, factors))]
    return formats, [result, matrix, *dense], lambda _: out.copy()
