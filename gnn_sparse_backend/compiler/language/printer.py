"""Stage I programs as Python: the text builds the same program when it runs (see `program_from_script`)."""

from __future__ import annotations

import math

from .axes import Axis, Size, StageIError
from .expr import Binary, Call, Cast, Const, Expr, Load, Offset, Owner, Present, Select, SizeOf, Stored, Var
from .program import WORDS, Bounds, Buffer, Iteration, Program, Store, walk_iterations

_PRECEDENCE = {"or": 0, "and": 1, "<": 2, "<=": 2, ">": 2, ">=": 2, "+": 3, "-": 3, "*": 4, "/": 4, "//": 4, "%": 4}
_FUNCTIONS = {"min": "minimum", "max": "maximum", "==": "equal", "!=": "differ", "and": "both", "or": "either"}
_FUNCTIONS |= {"&": "bit_and", "|": "bit_or"}
_INDENT = "    "


def script(program: Program) -> str:
    """Python text that leaves the program in the variable `program`."""
    p = _builder_name(program)
    lines = [f"{p} = ProgramBuilder({program.name!r})"]
    if program.sizes:
        names = ", ".join(s.name for s in program.sizes)
        lines.append(
            f"{names}{',' if len(program.sizes) == 1 else ''} = "
            f"{p}.sizes({', '.join(repr(s.name) for s in program.sizes)})"
        )
    lines += [f"{axis.name} = {_axis(axis, p)}" for axis in program.axes]
    lines += [_declaration(b, p) for b in program.buffers]
    for iteration in program.iterations:
        lines += _iteration(iteration, p)
    lines.append(f"program = {p}.finish()")
    return "\n".join(lines) + "\n"


def program_from_script(text: str) -> Program:
    """Run the text that `script` printed. It is Python: run only text whose origin is known."""
    from . import bits, builder, expr

    names = {n: getattr(room, n) for room in (expr, bits) for n in WORDS if hasattr(room, n)}
    names["ProgramBuilder"] = builder.ProgramBuilder
    exec(compile(text, "<stage I program>", "exec"), names)
    program = names.get("program")
    if not isinstance(program, Program):
        raise StageIError("the text does not leave a program in the variable 'program'")
    return program


def _builder_name(program: Program) -> str:
    """A name for the builder that nothing in the program has."""
    taken = set(program.names) | {v.name for it in walk_iterations(program.iterations) for v in it.variables}
    name = "p"
    while name in taken:
        name += "_"
    return name


def _extent(extent: int | Size) -> str:
    return extent.name if isinstance(extent, Size) else repr(extent)


def _axis(axis: Axis, p: str) -> str:
    args = [repr(axis.name)]
    if axis.parent is not None:
        args += [axis.parent.name, f"({_extent(axis.length)}, {_extent(axis.stored)})"]
    else:
        args.append(_extent(axis.length))
    if axis.kind == "dense_variable":
        args.append(repr(axis.indptr))
    elif axis.kind == "sparse_fixed":
        args.append(repr(axis.indices))
    elif axis.kind == "sparse_variable":
        args.append(f"({axis.indptr!r}, {axis.indices!r})")
    if axis.parent is not None:
        args.append(repr(axis.index_dtype))
    if axis.role:
        args.append(f"role={axis.role!r}")
    if axis.is_sparse:
        args += [
            f"{flag}={getattr(axis, flag)}"
            for flag, usual in (("sorted", True), ("unique", True), ("padded", False))
            if getattr(axis, flag) != usual
        ]
    return f"{p}.{axis.kind}({', '.join(args)})"


def _axes(axes: tuple[Axis, ...]) -> str:
    return f"({', '.join(a.name for a in axes)}{',' if len(axes) == 1 else ''})"


def _declaration(buffer: Buffer, p: str) -> str:
    make = {"param": "buffer", "temporary": "temporary", "local": "local"}[buffer.scope]
    strided = ", strided=True" if buffer.strided else ""
    return f"{buffer.name} = {p}.{make}({buffer.name!r}, {_axes(buffer.axes)}, {buffer.dtype!r}{strided})"


def _iteration(it: Iteration, p: str) -> list[str]:
    variables = tuple(v.name for v in it.variables)
    fused = f", fused=({', '.join(_axes(g) for g in it.fused)},)" if it.fused else ""
    merged = f", merged={_axes(it.merged)}" if it.merged else ""
    if it.bounds:
        merged += f", bounds=({' '.join(f'{_bounds(b)},' for b in it.bounds)})"
    bound = f"({', '.join(variables)}{',' if len(variables) == 1 else ''})"
    lines = [f"with {p}.iterate({it.name!r}, {_axes(it.axes)}, {it.kinds!r}, {variables!r}{fused}{merged}) as {bound}:"]
    inner = [_declaration(b, p) for b in it.locals]
    if it.init:
        inner.append(f"with {p}.init():")
        inner += [_INDENT + _store(s) for s in it.init]
    if it.where is not None:
        inner.append(f"{p}.where({text(it.where)})")
    for statement in it.body:
        inner += _iteration(statement, p) if isinstance(statement, Iteration) else [_store(statement)]
    return lines + [_INDENT + line for line in inner or ["pass"]]


def _bounds(bounds: Bounds) -> str:
    return f"({bounds.axis.name}, {text(bounds.low)}, {text(bounds.high)}, {bounds.by!r}, {bounds.most})"


def _bare(expr: Expr) -> bool:
    """Whether it is printed as a plain Python number."""
    return isinstance(expr, Const) and expr.dtype == "int64"


def _store(store: Store) -> str:
    return f"{_access(store.buffer, store.indices)} = {text(store.value)}"


def _access(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(text(i) for i in indices) or '()'}]"


def text(expr: Expr, outer: int = -1) -> str:
    """One expression, in parentheses where it stands under an operator that binds at least as tightly."""
    match expr:
        case Const():
            # a bare number takes the type of what it stands beside; print the type so that it never has to
            value = repr(expr.value) if math.isfinite(expr.value) else f"float({str(expr.value)!r})"
            return f"number({value}, {expr.dtype!r})" if expr.dtype != "int64" else repr(expr.value)
        case Var():
            return expr.name
        case SizeOf():
            return f"number({expr.size.name})"
        case Load():
            return _access(expr.buffer, expr.indices)
        case Binary() if expr.op in _FUNCTIONS:
            return f"{_FUNCTIONS[expr.op]}({text(expr.a)}, {text(expr.b)})"
        case Binary():
            mine = _PRECEDENCE[expr.op]
            left = text(expr.a, mine)
            # Python would work out 2 + 3 by itself, and turn 3 < i into i > 3
            if _bare(expr.a) and (_bare(expr.b) or mine == 2):
                left = f"number({left})"
            line = f"{left} {expr.op} {text(expr.b, mine + 1)}"
            return f"({line})" if outer > mine or (mine == 2 and outer >= 2) else line
        case Call():
            return f"call({expr.function!r}, {text(expr.argument)})"
        case Present():
            return f"present({text(expr.load)})"
        case Stored():
            return f"stored({', '.join((expr.axis.name, *map(text, expr.indices)))})"
        case Offset():
            return f"{expr.part}({', '.join((expr.axis.name, *map(text, expr.indices)))})"
        case Owner():
            return f"owner_of({expr.axis.name}, {text(expr.at)})"
        case Select():
            return f"select({text(expr.condition)}, {text(expr.then)}, {text(expr.otherwise)})"
        case Cast():
            value = f"number({text(expr.value)})" if _bare(expr.value) else text(expr.value)
            return f"cast({expr.dtype!r}, {value})"
    raise StageIError(f"cannot print {expr!r}")
