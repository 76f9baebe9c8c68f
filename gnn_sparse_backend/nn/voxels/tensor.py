"""``SparseTensor``: features at the sites of a grid."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import torch
from torch import Tensor

from ...ops.core.operands import check_dense
from ...structures.coordinates import Coordinates, Cross, Offsets, Window
from ...structures.derived import Keeper
from ...structures.kernel_map import KernelMap
from .maps import Path, convolved, sites_of_rows
from .traced import TracedSites, check_traced_sites, traced

if TYPE_CHECKING:
    from typing_extensions import Self

Axes: TypeAlias = int | Sequence[int]
"""One for all axes, or one for each."""
KernelSize: TypeAlias = Axes | Cross | Offsets
_UNION = "; nn.union puts tensors of one grid on the sites of all of them"


class SparseTensor:
    """Features at integer coordinates of a grid with D axes, 1 to 5, in the order in which rows were given.

        x = nn.SparseTensor(features, coordinates)
        y = nn.SubMConv(16, 32, kernel_size=3)(x)

    What a convolution needs of the coordinates is found once, and kept on them: all tensors of a network that have the
    same sites share it, and ``gsb.memory(x)`` lists it with bytes. A tensor that a strided layer returns remembers the
    sites it came from, so that a transposed or inverse layer can return to them.

    Args:
        features: (N, C) in float32, float64, bfloat16 or float16.
        coordinates: (N, 1 + D) integers, the batch first; no row twice. They count in cells of the grid that the tensor
            is on: a layer of stride 2 halves them. Batches are not negative, coordinates may be. Copied, as int32 if
            given as such, else int64.
        stride: how many cells of the finest grid a cell is along the axes, an int or one for each.
        batch_size: how many batches there are, with or without sites. None: the largest plus one.
        spatial_shape: None for a grid without bounds; or (D,) sizes: coordinates are in [0, size), and layers return
            the sites within the output of a dense layer.

    Raises:
        TypeError, ValueError: an argument is not as above, or coordinates have too many values along their axes:
            64-bit keys have to number the cells between them. The first bad row is quoted.
    """

    __slots__ = ("__weakref__", "_path", "_sites", "features")

    features: Tensor

    def __init__(
        self,
        features: Tensor,
        coordinates: Tensor,
        stride: Axes = 1,
        batch_size: int | None = None,
        spatial_shape: Sequence[int] | None = None,
    ) -> None:
        sites = sites_of_rows(coordinates, stride, batch_size, spatial_shape)
        _check_features(features, sites)
        self.features, self._sites, self._path = features, sites, ()

    @classmethod
    def _of(cls, features: Tensor, sites: Coordinates, path: Path = ()) -> Self:
        self = object.__new__(cls)
        self.features, self._sites, self._path = features, sites, path
        return self

    @property
    def sites(self) -> Coordinates:
        """The sites, with all that is kept on them; within a program that is traced what stands for them."""
        return _out_of_programs(self._sites)

    @property
    def path(self) -> Path:
        """The finer sites that the tensor came from, each with the window of the layer that left them."""
        return tuple((_out_of_programs(sites), window) for sites, window in self._path)

    @property
    def coordinates(self) -> Tensor:
        """(N, 1 + D) the batch first; not to be written to."""
        return self.sites.rows

    @property
    def stride(self) -> tuple[int, ...]:
        return self.sites.stride

    @property
    def batch_size(self) -> int:
        return self.sites.batch_size

    @property
    def spatial_shape(self) -> tuple[int, ...] | None:
        return self.sites.sizes

    @property
    def dim(self) -> int:
        """D."""
        return self.sites.dim

    @property
    def shape(self) -> torch.Size:
        """(N, C)."""
        return self.features.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.features.dtype

    @property
    def device(self) -> torch.device:
        return self.features.device

    def with_features(self, features: Tensor) -> SparseTensor:
        """Other features at the same sites: (N, any number of channels)."""
        _check_features(features, self.sites)
        return SparseTensor._of(features, self.sites, self.path)

    @overload
    def kernel_map(
        self,
        kernel_size: KernelSize,
        stride: Axes = 1,
        dilation: Axes = 1,
        padding: Axes | None = None,
        outputs: str = "occupied",
        *,
        sites: Literal[False] = False,
    ) -> KernelMap: ...
    @overload
    def kernel_map(
        self,
        kernel_size: KernelSize,
        stride: Axes = 1,
        dilation: Axes = 1,
        padding: Axes | None = None,
        outputs: str = "occupied",
        *,
        sites: Literal[True],
    ) -> tuple[KernelMap, SparseTensor]: ...
    def kernel_map(
        self,
        kernel_size: KernelSize,
        stride: Axes = 1,
        dilation: Axes = 1,
        padding: Axes | None = None,
        outputs: str = "occupied",
        *,
        sites: bool = False,
    ) -> KernelMap | tuple[KernelMap, SparseTensor]:
        """The map of a convolution with these arguments (``SparseConv``), for ``gsb.sparse_conv``; as it stands that of
        a submanifold one. Its ``transpose()`` is that of the inverse convolution.

            kernel_map, y = x.kernel_map(3, stride=2, sites=True)
            y = y.with_features(gsb.sparse_conv(x.features, weight, kernel_map))

        Args:
            sites: whether the sites of the outputs are wanted, too.

        Returns:
            The map; or (the map, a SparseTensor without channels at the outputs, from which there is a way back).
        """
        window = Window.of(self.dim, kernel_size, stride, dilation, padding)
        kernel_map, there, path = convolved(self.sites, self.path, window, outputs)
        if not sites:
            return kernel_map
        return kernel_map, SparseTensor._of(self.features.new_empty(there.rows.shape[0], 0), there, path)

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """Convert as ``torch.Tensor.to`` does: to another type of features, or to another device for all of it. There
        kernel maps are made anew, and a strided layer's way back is forgotten.
        """
        features = self.features.to(*args, **kwargs)
        if features.device == self.features.device:
            return self if features is self.features else SparseTensor._of(features, self.sites, self.path)
        return SparseTensor._of(features, self.sites.to(features.device))

    def detach(self) -> SparseTensor:
        """Return the tensor with features detached from what they were computed from."""
        return SparseTensor._of(self.features.detach(), self.sites, self.path)

    def keepers(self) -> Iterator[Keeper]:
        """The sites and those that they came from, with all that is kept on them (``gsb.memory``)."""
        seen: set[int] = set()
        for sites in (self.sites, *(finer for finer, _ in self.path)):
            for keeper in sites.keepers():
                if id(keeper.it) not in seen:
                    seen.add(id(keeper.it))
                    yield keeper

    def release(self) -> None:
        """Free all that is kept on the sites; it is made again where it is needed."""
        for sites in (self.sites, *(finer for finer, _ in self.path)):
            sites.release()

    def _with(self, other: object, operation: Callable[[Any, Any], Tensor], reverse: bool = False) -> SparseTensor:
        if isinstance(other, SparseTensor):
            check_same_sites("arithmetic", self, other)
            other = other.features
        elif not isinstance(other, (int, float, Tensor)):
            return NotImplemented
        left, right = (other, self.features) if reverse else (self.features, other)
        return self.with_features(operation(left, right))

    def __add__(self, other: object) -> SparseTensor:
        return self._with(other, operator.add)

    def __radd__(self, other: object) -> SparseTensor:
        return self._with(other, operator.add, True)

    def __sub__(self, other: object) -> SparseTensor:
        return self._with(other, operator.sub)

    def __rsub__(self, other: object) -> SparseTensor:
        return self._with(other, operator.sub, True)

    def __mul__(self, other: object) -> SparseTensor:
        return self._with(other, operator.mul)

    def __rmul__(self, other: object) -> SparseTensor:
        return self._with(other, operator.mul, True)

    def __truediv__(self, other: object) -> SparseTensor:
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: object) -> SparseTensor:
        return self._with(other, operator.truediv, True)

    def __neg__(self) -> SparseTensor:
        return self.with_features(-self.features)

    def __len__(self) -> int:
        return self.sites.rows.shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseTensor._of, (self.features, self.sites, self.path)

    def __repr__(self) -> str:
        bounds = "" if self.spatial_shape is None else f", within {self.spatial_shape}"
        return (
            f"SparseTensor({self.features.shape[0]} sites of {self.features.shape[1]} channels, {self.batch_size} "
            f"batches, {self.dim} axes, stride {self.stride}{bounds}, {self.dtype}, {self.device})"
        )


def _out_of_programs(sites: Any) -> Any:
    if not isinstance(sites, TracedSites) or torch.compiler.is_compiling():
        return sites
    return sites.live()


def check_sparse(what: str, x: object) -> None:
    """``x`` is a ``SparseTensor``."""
    if not isinstance(x, SparseTensor):
        raise TypeError(f"{what} takes a gnn_sparse_backend.nn.SparseTensor, got {type(x).__name__}")


def check_same_sites(what: str, *tensors: SparseTensor) -> None:
    """All tensors have the same sites in the same order."""
    if torch.compiler.is_compiling():
        check_traced_sites(what, [traced(x.sites) for x in tensors])
        return
    first = tensors[0].sites
    for other in (x.sites for x in tensors[1:]):
        if first.same_as(other):
            continue
        if first.rows.shape != other.rows.shape or first.stride != other.stride or first.device != other.device:
            raise ValueError(f"{what} wants tensors on the same sites, got {first!r} and {other!r}{_UNION}")
        at = int((first.rows != other.rows).any(1).nonzero()[0])
        raise ValueError(
            f"{what} wants tensors on the same sites in the same order, but site {at} is {first.rows[at].tolist()} in "
            f"one and {other.rows[at].tolist()} in another{_UNION}"
        )


def _check_features(features: object, sites: Coordinates) -> None:
    check_dense("SparseTensor", "features", features)
    assert isinstance(features, Tensor)
    if features.dim() != 2 or features.shape[0] != sites.rows.shape[0]:
        raise ValueError(
            f"features must have shape (N, C) with N = {sites.rows.shape[0]}, a row for each site, got "
            f"{tuple(features.shape)}"
        )
    if features.device != sites.device:
        raise ValueError(f"features are on {features.device} but coordinates on {sites.device}; move one of them")
