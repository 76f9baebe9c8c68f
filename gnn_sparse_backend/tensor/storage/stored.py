"""A structure and its values, and what becomes of them in other formats and libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import FormatError
from .format import Format, as_format, dense
from .structure import Structure, check_index_dtype, dense_levels, pack, turned, turns
from .values import (
    Values,
    bits,
    checked,
    dtype_name,
    integers,
    is_recorded,
    is_tensor,
    of_bits,
    spread,
    taken,
    to_dtype,
)

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

GivenFormat: TypeAlias = Format | str | Sequence[str] | None


class Stored:
    """A tensor in a format. Immutable; what is made of one shares whatever it can.

    Attributes:
        structure: where its elements are stored.
        values: one for each position, as a NumPy array or a PyTorch tensor, of one dimension.
    """

    def __init__(self, structure: Structure, values: Values) -> None:
        if tuple(values.shape) != (structure.positions,):
            raise FormatError(
                f"{structure.positions} positions are stored, and values of the shape {tuple(values.shape)} are given; "
                "give one of each in one dimension"
            )
        self.structure = structure
        self.values = values

    @property
    def format(self) -> Format:
        """How it is stored."""
        return self.structure.format

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of coordinates of each mode."""
        return self.structure.shape

    @property
    def ndim(self) -> int:
        """The number of modes."""
        return len(self.shape)

    @property
    def dtype(self) -> str:
        """The type of the values, as "float32"."""
        return dtype_name(self.values)

    @property
    def index_dtype(self) -> str:
        """The type of the index arrays, "int32" or "int64"."""
        return self.structure.index_dtype

    @property
    def nnz(self) -> int:
        """The number of elements that are stored, zeros among them, and slots and masked places not."""
        return self.structure.count

    def coordinates(self) -> tuple[np.ndarray, Values]:
        """(int64 coordinates of shape (modes, nnz), the value of each) of what is stored, in the order of storage."""
        at, positions = self.structure.coordinates()
        return at, taken(self.values, positions)

    def to(self, format: GivenFormat = None, *, dtype: str | None = None, index_dtype: str | None = None) -> Self:
        """Convert the tensor to another format, or to other types.

        Out of formats that end in a dense level, zeros are left out, since nothing tells them from what fills up.
        Raises FormatError.
        """
        check_index_dtype(index_dtype)
        wanted = self.format if format is None else as_format(format, self.ndim)
        values = self.values if dtype is None else to_dtype(self.values, dtype)
        if wanted == self.format and index_dtype in (None, self.index_dtype):
            return type(self)(self.structure, values)
        if self.index_dtype == (index_dtype or self.index_dtype) and turns(self.structure, wanted):
            return type(self)(*_turned(self.structure, wanted, values))
        at, values = Stored(self.structure, values).elements(wanted)
        return type(self)(*packed(wanted, self.shape, at, values, index_dtype))

    def elements(
        self, wanted: Format, at: np.ndarray | None = None, positions: np.ndarray | None = None
    ) -> tuple[np.ndarray, Values]:
        """(coordinates, values) of what a tensor of the format `wanted` is to store of this one, or, where coordinates
        are given for some positions, of those: all elements, but no zeros that nothing tells from what fills up.
        """
        if at is None or positions is None:
            at, positions = self.structure.coordinates()
        values = taken(self.values, positions)
        if not self.format.exact and wanted != self.format and not wanted.is_dense:
            there = np.flatnonzero(_nonzero(values))
            return at[:, there], taken(values, there)
        return at, values

    def with_all(self, format: Format) -> Self:
        """Convert the tensor to another format, keeping zeros of dense levels, which have gradients as others do."""
        if format == self.format:
            return self
        if turns(self.structure, format):
            return type(self)(*_turned(self.structure, format, self.values))
        return type(self)(*packed(format, self.shape, *self.coordinates()))

    def with_values(self, values: Values) -> Self:
        """A tensor of the same structure with other values, one for each position."""
        return type(self)(self.structure, checked(values, "values"))

    def permute(self, *modes: int) -> Self:
        """The tensor whose mode n is mode modes[n] of this one; nothing is copied."""
        if sorted(integers(modes, "permute")) != list(range(self.ndim)):
            raise ValueError(f"permute{modes} of {self.ndim} modes must name each of 0 to {self.ndim - 1} once")
        return type(self)(self.structure.permuted(modes), self.values)

    @property
    def T(self) -> Self:
        """The tensor with its modes the other way round; nothing is copied."""
        return self.permute(*reversed(range(self.ndim)))

    def to_dense(self) -> np.ndarray:
        """Convert to a NumPy array, without a copy where it is stored like one. Raises TypeError for bfloat16."""
        found: np.ndarray = _dense(Stored(self.structure, self._of_numpy("to_dense")))
        return found

    def _of_numpy(self, wanted: str) -> np.ndarray:
        """The values as an array of NumPy, for the method of this name."""
        if not is_tensor(self.values):
            return np.asarray(self.values)
        if self.dtype == "bfloat16":
            raise TypeError(f"NumPy has no bfloat16; use .to_torch(), or .to(dtype='float32').{wanted}()")
        return np.asarray(self.values.detach().numpy())

    def to_torch(self, layout: str = "strided") -> Tensor:
        """Convert to a PyTorch tensor, differentiable in the values where those are.

        Args:
            layout: "strided", or "coo", "csr" and "csc" of PyTorch's sparse tensors; the last two of matrices.
        """
        import torch

        if not isinstance(layout, str) or layout not in ("strided", "coo", "csr", "csc"):
            raise ValueError(f"layout {layout!r:.60} is not one of 'strided', 'coo', 'csr', 'csc'")
        values = self.values if is_tensor(self.values) else torch.from_numpy(np.ascontiguousarray(self.values))
        found = Stored(self.structure, values)
        if layout == "strided":
            return _dense(found)
        if layout == "coo":
            at, values = found.coordinates()
            return torch.sparse_coo_tensor(torch.from_numpy(at), values, self.shape, check_invariants=False)
        matrix = found.to(layout)
        level = matrix.structure.levels[1]
        make = torch.sparse_csr_tensor if layout == "csr" else torch.sparse_csc_tensor
        arrays = (torch.from_numpy(_given(level.offsets)), torch.from_numpy(_given(level.indices)))
        return make(*arrays, matrix.values, size=self.shape)

    def to_scipy(self, format: str | None = None) -> Any:
        """Convert a matrix to a sparse array of SciPy.

        Args:
            format: "csr", "csc", "coo", "bsr" or "dia"; that of the array, where SciPy has it, otherwise "csr". Blocks
                are those of the array where they fill the shape, which SciPy wants; otherwise SciPy chooses them.
        """
        from scipy import sparse

        if self.ndim != 2:
            raise FormatError(f"SciPy's sparse arrays are matrices, and this one has the shape {self.shape}")
        own = str(self.format).partition("(")[0]
        wanted = (own if own in ("csr", "csc", "coo", "bsr", "dia") else "csr") if format is None else format
        if not isinstance(wanted, str) or wanted not in ("csr", "csc", "coo", "bsr", "dia"):
            raise ValueError(f"format {format!r:.60} is not one of SciPy's 'csr', 'csc', 'coo', 'bsr', 'dia'")
        found = Stored(self.structure, self._of_numpy("to_scipy"))
        if wanted in ("csr", "csc"):
            found = found.to(wanted)
            level = found.structure.levels[1]
            make = sparse.csr_array if wanted == "csr" else sparse.csc_array
            return make((found.values, _given(level.indices), _given(level.offsets)), shape=self.shape)
        at, values = found.coordinates()
        made = sparse.coo_array((values, tuple(at)), shape=self.shape)
        block = self.format.block
        if wanted == "bsr" and block is not None and not any(n % side for n, side in zip(self.shape, block)):
            return made.tobsr(blocksize=block)
        return made.asformat(wanted)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False and self.format != dense(self.ndim):
            raise ValueError(f"an ordinary array of {self!r} is a copy; leave copy=False out")
        return np.array(self.to_dense(), dtype, copy=copy)

    def __repr__(self) -> str:
        kind = f"{self.format}, shape={self.shape}, nnz={self.nnz}, dtype={self.dtype}"
        return f"{type(self).__name__}({kind}, index_dtype={self.index_dtype})"


def _given(array: np.ndarray | None) -> np.ndarray:
    assert array is not None
    return array


def _nonzero(values: Values) -> np.ndarray:
    found = (values != 0).numpy() if is_tensor(values) else values != 0
    return np.asarray(found)


def _dense(found: Stored) -> Values:
    """The values in an array of all dimensions, of their own library."""
    if not (found.format.is_dense and found.format == dense(found.ndim)):
        at, values = found.coordinates()
        count = int(np.prod(found.shape, dtype=np.int64))
        places = np.ravel_multi_index(tuple(at), found.shape) if at.size else np.zeros(at.shape[1], np.int64)
        return spread(values, places, count).reshape(found.shape)
    return found.values.reshape(found.shape)


def _turned(structure: Structure, wanted: Format, values: Values) -> tuple[Structure, Values]:
    """`turned`, of values of any type: by their bits, or where gradients are recorded by their positions."""
    if is_recorded(values):
        found, positions = turned(structure, wanted, np.arange(structure.positions))
        return found, taken(values, positions)
    made, moved = turned(structure, wanted, bits(values))
    return made, of_bits(moved, values)


def packed(
    format: Format, shape: Sequence[int], at: np.ndarray, values: Values, index_dtype: str | None = None
) -> tuple[Structure, Values]:
    """The structure of elements at different coordinates, zeros too, and the values in its positions."""
    structure, places = pack(format, shape, at, index_dtype)
    return structure, spread(values, places, structure.positions)


def of_dense(values: Values) -> Stored:
    """A dense array of all dimensions of `values`, which it shares where they are contiguous."""
    shape = tuple(int(n) for n in values.shape)
    return Stored(Structure(dense(len(shape)), shape, tuple(dense_levels(shape))), values.reshape(-1))
