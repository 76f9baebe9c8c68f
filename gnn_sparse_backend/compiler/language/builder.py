"""Writing stage I programs in plain Python.

SpMM of a matrix in CSR:

    p = ProgramBuilder("csr_spmm")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"))
    JD = p.dense_fixed("JD", n)
    K = p.dense_fixed("K", 32)
    A = p.buffer("A", (I, J), "float32")
    B = p.buffer("B", (JD, K), "float32")
    C = p.buffer("C", (I, K), "float32")
    with p.iterate("spmm", (I, J, K), "SRS") as (i, j, k):
        with p.init():
            C[i, k] = 0.0
        C[i, k] = C[i, k] + A[i, j] * B[j, k]
    program = p.finish()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from . import axes as ax
from .axes import Axis, Extent, Size, StageIError
from .expr import Expr, ExprLike, Load, Var, as_expr, check_condition
from .program import Bounds, Buffer, Indices, Iteration, Program, Store
from .validate import validate


class BufferHandle:
    """A buffer while its program is being written: reads give loads, assignments record stores."""

    def __init__(self, builder: ProgramBuilder, buffer: Buffer) -> None:
        self._builder = builder
        self.value = buffer

    def __getitem__(self, indices: Indices) -> Load:
        return self.value[indices]

    def __setitem__(self, indices: Indices, value: ExprLike) -> None:
        target = self.value[indices]
        want = target.dtype
        value = as_expr(value, want)
        if value.dtype != want:
            raise StageIError(f"store to {self.value.name!r} ({want}) of a value of type {value.dtype}; cast it")
        self._builder._record(Store(self.value, target.indices, value))


Head: TypeAlias = tuple[str, tuple[Axis, ...], str, tuple[Var, ...]]
"""Name, axes, kinds and variables of an iteration."""


Limits: TypeAlias = tuple[Any, ...]
"""(axis, low, high), and perhaps "position" or "coordinate", and perhaps the most elements that this may be."""


class _Open:
    """An iteration whose body is still being written."""

    def __init__(
        self,
        head: Head,
        fused: tuple[tuple[Axis, ...], ...],
        merged: tuple[Axis, ...],
        bounds: tuple[Bounds, ...],
    ) -> None:
        self.head, self.fused, self.merged, self.bounds = head, fused, merged, bounds
        self.init: list[Store] = []
        self.body: list[Store | Iteration] = []
        self.locals: list[Buffer] = []
        self.where: Expr | None = None
        self.in_init = False

    def close(self) -> Iteration:
        written = tuple(self.init), tuple(self.body), tuple(self.locals)
        return Iteration(*self.head, *written, self.fused, self.where, self.merged, (), self.bounds)


class ProgramBuilder:
    """Collects sizes, axes, buffers and iterations; `finish` validates and returns the immutable program."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sizes: list[Size] = []
        self._axes: list[Axis] = []
        self._buffers: list[Buffer] = []
        self._body: list[Iteration] = []
        self._stack: list[_Open] = []

    def sizes(self, *names: str) -> tuple[Size, ...]:
        """Run-time numbers of rows, columns or non-zeros: arguments of the kernel, in this order."""
        made = tuple(Size(name) for name in names)
        self._sizes.extend(made)
        return made

    def size(self, name: str) -> Size:
        """One run-time number."""
        return self.sizes(name)[0]

    def _axis(self, axis: Axis) -> Axis:
        self._axes.append(axis)
        return axis

    def dense_fixed(self, name: str, length: Extent, role: str = "") -> Axis:
        """A root axis with the coordinates 0 .. length - 1. role: what a team of a GPU makes of its loop (`Axis`)."""
        return self._axis(ax.dense_fixed(name, length, role))

    def role_axis(self, name: str, length: Extent, role: str) -> Axis:
        """A root axis whose loop goes where its role says, called ``<name>_<role>``; without a role an ordinary one."""
        return self.dense_fixed(f"{name}_{role}" if role else name, length, role)

    def dense_variable(
        self, name: str, parent: Axis, extent: tuple[Extent, Extent], indptr: str, index_dtype: str = "int32"
    ) -> Axis:
        """A ragged axis. extent: the largest number of elements under a parent, and of all elements."""
        return self._axis(ax.dense_variable(name, parent, extent, indptr, index_dtype))

    def sparse_fixed(
        self,
        name: str,
        parent: Axis,
        extent: tuple[Extent, Extent],
        indices: str,
        index_dtype: str = "int32",
        **marks: bool,
    ) -> Axis:
        """Equally many listed coordinates under each parent. extent: the length of the axis, and how many.

        marks: `sorted`, `unique`, `padded`.
        """
        return self._axis(ax.sparse_fixed(name, parent, extent, indices, index_dtype, **marks))

    def sparse_variable(
        self,
        name: str,
        parent: Axis,
        extent: tuple[Extent, Extent],
        arrays: tuple[str, str],
        index_dtype: str = "int32",
        **marks: bool,
    ) -> Axis:
        """Any number of listed coordinates under each parent. extent: the length of the axis, and of all elements.

        marks: `sorted`, `unique`.
        """
        return self._axis(ax.sparse_variable(name, parent, extent, arrays, index_dtype, **marks))

    def buffer(self, name: str, axes: tuple[Axis, ...], dtype: str, *, strided: bool = False) -> BufferHandle:
        """A parameter of the program."""
        return self._declare(Buffer(name, tuple(axes), dtype, strided=strided))

    def temporary(self, name: str, axes: tuple[Axis, ...], dtype: str) -> BufferHandle:
        """A buffer that lives for one run of the program."""
        return self._declare(Buffer(name, tuple(axes), dtype, "temporary"))

    def local(self, name: str, axes: tuple[Axis, ...], dtype: str) -> BufferHandle:
        """A buffer that lives for one element of the iteration being written."""
        if not self._stack:
            raise StageIError(f"local buffer {name!r} must be declared inside an iteration")
        buffer = Buffer(name, tuple(axes), dtype, "local")
        self._stack[-1].locals.append(buffer)
        return BufferHandle(self, buffer)

    def _declare(self, buffer: Buffer) -> BufferHandle:
        self._buffers.append(buffer)
        return BufferHandle(self, buffer)

    @contextmanager
    def iterate(
        self,
        name: str,
        axes: Iterable[Axis],
        kinds: str,
        variables: Iterable[str] | None = None,
        fused: Iterable[Iterable[Axis]] = (),
        merged: Iterable[Axis] = (),
        bounds: Iterable[Limits] = (),
    ) -> Iterator[tuple[Var, ...]]:
        """A sparse iteration over `axes`; yields one variable per axis (named after it unless `variables` says).

        fused: groups of axes to be visited by one loop. merged: of an iteration over one dense axis, the sparse axes
        that its `where` asks for, to be walked together. bounds: (axis, low, high, "position" or "coordinate", most) of
        an axis of which only elements from low up to high are visited; the last two may be left out (`Bounds`).
        """
        axes = tuple(axes)
        names = tuple(variables) if variables else tuple(a.name.lower() for a in axes)
        if len(names) != len(axes):
            raise StageIError(f"iteration {name!r}: {len(axes)} axes and {len(names)} variable names")
        found = tuple(Var(n) for n in names)
        within = tuple(Bounds(axis, as_expr(low), as_expr(high), *more) for axis, low, high, *more in bounds)
        head = name, axes, kinds, found
        self._stack.append(_Open(head, tuple(tuple(g) for g in fused), tuple(merged), within))
        try:
            yield found
        finally:  # an iteration whose writing failed is given up
            done = self._stack.pop().close()
        (self._stack[-1].body if self._stack else self._body).append(done)

    @contextmanager
    def init(self) -> Iterator[None]:
        """Stores that run once for each element of the spatial axes, before the reduction."""
        if not self._stack:
            raise StageIError("init belongs inside an iteration")
        top = self._stack[-1]
        top.in_init = True
        try:
            yield
        finally:
            top.in_init = False

    def where(self, condition: Expr) -> None:
        """Run the body of the iteration being written only where `condition` holds."""
        if not self._stack or self._stack[-1].where is not None:
            raise StageIError("where belongs inside an iteration, once")
        check_condition(condition, "where")
        self._stack[-1].where = condition

    def _record(self, store: Store) -> None:
        if not self._stack:
            raise StageIError(f"store to {store.buffer.name!r} outside any iteration")
        top = self._stack[-1]
        (top.init if top.in_init else top.body).append(store)

    def finish(self) -> Program:
        """The program. Raises StageIError where it is not well formed."""
        if self._stack:
            raise StageIError(f"iteration {self._stack[-1].head[0]!r} is still open")
        program = Program(self._name, tuple(self._sizes), tuple(self._axes), tuple(self._buffers), tuple(self._body))
        validate(program)
        return program
