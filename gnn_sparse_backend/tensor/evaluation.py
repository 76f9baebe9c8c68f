"""Expressions of tensors: computed at once, or compiled to a kernel that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .array import Array, array
from .expressions.contraction import Factor, Path, kept_indices, path_of
from .expressions.kernel import TensorKernel, kernel_of, own_format
from .expressions.notation import Statement as Notation
from .expressions.notation import accesses, parse, parse_einsum
from .expressions.specs import extents_of
from .running import run
from .scheduling.initial import statement_of
from .scheduling.statement import Statement
from .semirings import semiring_of
from .storage.format import Format
from .storage.stored import GivenFormat
from .storage.values import dtype_beside, is_finite, number, promoted
from .subscripts import written_out


class Kernel(TensorKernel):
    """An expression compiled for operands of certain formats and types; any numbers of rows and elements are taken.

    Made by `compile`. Call it with the operands by name, as `kernel(B=..., C=...)`; it returns the result. Raises
    TypeError and ValueError for operands that it was not compiled for.

    Attributes:
        format: of the result.
    """

    def __call__(self, /, **operands: Any) -> Array:
        statement = self.plan.statement
        stored = run(self, arrays_of(statement, operands))
        return Array(stored.structure, stored.values)


def evaluate(expression: str, /, *, format: GivenFormat = None, semiring: str = "plus_times", **operands: Any) -> Array:
    """The result of an expression in index notation.

        evaluate("A[i,j] = B[i,k,l] * C[k,j] * D[l,j]", B=b, C=c, D=d)

    Args:
        expression: `result[indices] = sum of products`. An index that the result has not is summed over, in each
            product by itself. Numbers, brackets, `+ - * /` and exp, log, sqrt, tanh, sigmoid, abs, relu, which are
            applied before the sum. A tensor without indices is a number.
        format: of the result. None: at the coordinates of the sparse operand where the result has all of its indices (a
            sampled product); at coordinates of its own where several sparse operands have all of the result's indices,
            its last level compressed and one above where operands store it so in every product; otherwise an ordinary
            array. One that is computed as an ordinary array is stored without its zeros; with
            them where gradients are recorded, which they have too.
        semiring: what `+` and the sum over an index, and what `*` mean: "plus_times", "min_plus", "max_plus",
            "min_times", "max_times", "min_max", "max_min" or "or_and", which takes and gives truth values. What is not
            stored is absent: a sparse result stores what at least one product has, and an ordinary array holds the zero
            of the semiring elsewhere, which is infinity, its negative, or False, and of integers the largest or the
            smallest. Others than the first have tensors, `+` and `*` alone, products written out, and no gradients.
        operands: by name: an `Array`, an array of NumPy, SciPy or PyTorch, or a number.

    Elements of a sparse operand that are not stored are zero, whatever they would be multiplied by. The type of the
    result is that of the operands, promoted as NumPy does, and truth values are counted in int64; float16 and bfloat16
    are summed in float32. It is PyTorch's where an operand is. Raises NotationError, which shows the place, and
    CoIterationError where one sparse operand is read in two orders of its modes.
    """
    return _computed(parse(expression).under(semiring_of(semiring)), operands, format)


def einsum(
    subscripts: Any,
    *operands: Any,
    format: GivenFormat = None,
    semiring: str = "plus_times",
    optimize: bool = True,
) -> Array:
    """The result of subscripts as NumPy's `einsum` takes them: `einsum("ij,jk->ik", A, B)`; as `evaluate` otherwise.

    An ellipsis stands for modes that are broadcast; indices may be lists behind the operands: `einsum(A, [0, 1], [0])`.

    optimize: whether three operands and more may be contracted two at a time, where the result is of sums, and an
    ordinary array or all operands are sparse, all numbers are finite, and that takes a fraction of the products; False
    for one kernel.
    """
    subscripts, operands = written_out(subscripts, operands)
    statement = parse_einsum(subscripts, len(operands)).under(semiring_of(semiring))
    arrays = arrays_of(statement, {f"T{n}": operand for n, operand in enumerate(operands)})
    if optimize and len(operands) > 2 and statement.semiring.is_ordinary:
        factors = [access.indices for access in accesses(statement.expression)]
        steps = _steps(statement, factors, arrays, format)
        if steps is not None:
            return _in_steps(statement.result.indices, factors, list(arrays.values()), *steps)
    return _computed(statement, arrays, format)


def _steps(
    statement: Notation, factors: list[tuple[str, ...]], arrays: Mapping[str, Array], format: GivenFormat
) -> tuple[Path, Format] | None:
    """The order of two at a time, and the format of the result, where that is allowed and pays."""
    given, result = list(arrays.values()), frozenset(statement.result.indices)
    sizes = extents_of(statement, arrays)
    if any(len(set(indices)) < len(indices) for indices in factors):
        return None
    known = [Factor(frozenset(indices), x.structure.count) for indices, x in zip(factors, given)]
    # elements that a sparse result stores are those of one kernel where no step gives an ordinary array
    apart = len({indices for indices, _ in known}) == len(known) and not any(x.format.is_dense for x in given)
    path = path_of(known, result, sizes, apart)
    if path is None or not all(is_finite(x.values) for x in given):
        return None
    found = own_format(statement, arrays, format)
    if found is None or not (found.is_dense or apart):
        return None
    path = path_of(known, result, sizes) if found.is_dense else path
    return None if path is None else (path, found)


def _in_steps(
    result: tuple[str, ...], factors: list[tuple[str, ...]], given: list[Array], path: Path, format: Format
) -> Array:
    left, order = list(zip(factors, given)), list(dict.fromkeys(index for indices in factors for index in indices))
    for a, b in path:
        pair = left[a], left[b]
        left = [each for at, each in enumerate(left) if at not in (a, b)]
        (one, x), (other, y) = pair
        needed = frozenset(result).union(*(indices for indices, _ in left))
        kept = kept_indices(frozenset(one), frozenset(other), needed)
        indices = tuple(index for index in order if index in kept) if left else result
        product = f"{''.join(one)},{''.join(other)}->{''.join(indices)}"
        left.append((indices, einsum(product, x, y, format=None if left else format)))
    return left[0][1]


def compile(
    expression: str | Statement, /, *, format: GivenFormat = None, semiring: str = "plus_times", **operands: Any
) -> Kernel:
    """The kernel of an expression for operands like these, to be kept: `print(kernel.stages())`, `kernel(B=b, C=c)`.

    Arguments and errors are those of `evaluate`; a `Statement` knows its operands, and is given alone. Formats, types,
    numbers of slots and extents up to 512 of indices of dense operands alone are compiled in.
    """
    if isinstance(expression, Statement):
        if operands or format is not None or semiring != "plus_times":
            raise TypeError("a statement has its operands and its format already; compile it alone")
        found = expression.kernel()
    else:
        notation = parse(expression).under(semiring_of(semiring))
        found, _ = kernel_of(notation, arrays_of(notation, operands), format)
    return Kernel(found.plan, found.format, found.made)


def statement(expression: str, /, *, format: GivenFormat = None, **operands: Any) -> Statement:
    """The loops of an expression for operands like these, to be scheduled by commands and compiled by `compile`.

    Arguments and errors are those of `evaluate`, without a semiring. Raises ScheduleError for functions of several
    sparse operands. If a result is put together element by element, loops over rows are outermost, and what is inside
    may be cut up.
    """
    notation = parse(expression)
    return statement_of(expression, arrays_of(notation, operands), notation, format)


def _computed(statement: Notation, operands: Mapping[str, Any], format: GivenFormat) -> Array:
    found = run(*kernel_of(statement, arrays_of(statement, operands), format))
    return Array(found.structure, found.values)


def arrays_of(statement: Notation, operands: Mapping[str, Any]) -> dict[str, Array]:
    """The operands that a statement names, as arrays. Raises TypeError for one that is none or that nothing names."""
    for name in ("format", "semiring"):
        if name in statement.names and name not in operands:
            raise TypeError(f"an operand has the name {name!r}, which is that of an argument; call it otherwise")
    for name in operands:
        if name not in statement.names:
            raise TypeError(f"operand {name} is not in the expression {statement.text!r}")
    wanted = statement.semiring.dtype or None
    if wanted is None and all(isinstance(x, Array) for x in operands.values()):
        return dict(operands)
    found: dict[str, Array] = {}
    numbers = {name: x for name, x in operands.items() if isinstance(x, (int, float)) and not isinstance(x, bool)}
    for name, x in operands.items():
        if name in numbers:
            continue
        try:
            found[name] = array(x, dtype=wanted)
        except (TypeError, ValueError) as error:
            raise type(error)(f"operand {name}: {error}") from None
    common = promoted([each.dtype for each in found.values()]) if found else "float64"
    for name, x in numbers.items():
        found[name] = array(bool(x) if wanted else number(x, dtype_beside(x, common)))
    return found
