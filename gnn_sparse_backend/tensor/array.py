"""Arrays: made of whatever holds a tensor, and computed with by Python's operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .comparing import Comparisons
from .parts.indexing import part
from .parts.reshaping import reshaped
from .product_indices import dot_indices
from .reductions import Reductions
from .storage.making import make
from .storage.stored import GivenFormat


class Array(Comparisons, Reductions):
    """A tensor in a format, made by `array` and by expressions. Immutable; what is made of one shares what it can.

    Operators are those of the array API: `A @ B`, `A * B`, `A + B`, `A - B`, `A / b`, `-A`, `abs(A)`, `A.sum(axis)`,
    `max`, `min`, `mean`, `any`, `all`, `A.T`, comparisons such as `A < B`, and `&`, `|`, `^`, `~` of truth values, with
    NumPy's broadcasting. What stands beside an array may be whatever `array` takes, or a number, which arithmetic
    rounds to the type of the array. Arithmetic counts truth values as the int64 numbers 0 and 1. SciPy's matrices and
    sparse arrays decide `*` and `@` themselves where they stand on the left, and give what is SciPy's or NumPy's.

    `A[...]` takes what NumPy's arrays take: integers, slices, Ellipsis, None, masks, and arrays of integers. The result
    has the format of the array while it has its modes; the levels of those that are left, where integers took some
    away; and coo where neither is a format of sparse tensors. An integer for each mode gives an array without modes.
    """

    def __getitem__(self, key: Any) -> Array:
        return Array(*part(self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("arrays are immutable; make another one of coordinates and values, or by A.with_values(values)")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("an array without modes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[n] for n in range(len(self)))

    def dot(self, other: Any) -> Array:
        """Multiply as the function `dot` does, with this array on the left."""
        found = self.multiplied(dot_indices, self, other)
        if found is NotImplemented:
            raise TypeError(f"{other!r:.60} is not what `array` takes")
        return found

    def reshape(self, *shape: Any) -> Array:
        """Give the same elements another shape; they are counted in the order of the modes, along the last one first.

        Args:
            shape: integers, or several in a tuple; one of them may be -1, and is told by the others.

        The format is that of the array, of as many modes where it is dense or csf; otherwise coo. Raises ValueError for
        a shape of another number of elements.
        """
        return Array(*reshaped(self, shape))


def array(
    x: Any,
    format: GivenFormat = None,
    *,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    index_dtype: str | None = None,
    duplicates: str = "sum",
) -> Array:
    """A tensor in a format.

    Args:
        x: an array of NumPy, or what becomes one; a sparse matrix or array of SciPy; a PyTorch tensor on the CPU,
            strided or sparse; an `Array`; or (coordinates, values), coordinates of shape (modes, elements).
        format: a `Format`, its levels, or a name: "dense", "csr", "csc", "coo", "dcsr", "csf", "ell", "dia", "bsr(4)".
            That of `x`, if None: "dense", SciPy's or PyTorch's, and "coo" of coordinates.
        shape: of coordinates; the smallest that holds them, if None.
        dtype: of the values: float64, float32, float16, int64, int32, int16, int8, bool, or of PyTorch's bfloat16;
            theirs, if None.
        index_dtype: "int32" or "int64"; int32 where everything fits, if None.
        duplicates: what to do with coordinates that occur several times: "sum" or "refuse". An `Array` has none.

    Elements that are given by their coordinates are stored, zeros too; of a dense `x` those that are not zero are.
    Memory is shared with `x` where its arrays are what is needed, those of a NumPy array and of SciPy's CSR and CSC in
    order: what is written to them later is written to the tensor.
    Raises FormatError for what does not fit, TypeError for other types, and ValueError for what is out of the shape.
    """
    found = make(x, format, shape, dtype, index_dtype, duplicates)
    return Array(found.structure, found.values)
