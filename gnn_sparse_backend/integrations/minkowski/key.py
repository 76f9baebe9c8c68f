"""``CoordinateMapKey``: the name of a set of sites in a coordinate manager."""

from __future__ import annotations

from collections.abc import Sequence


class CoordinateMapKey:
    """The stride of a grid and a word. Keys of one stride and word are equal, whatever manager they are for.

    Args: D + 1, for a key that is set later; or a stride for each axis, and the word.
    """

    __slots__ = ("_key", "_size")

    def __init__(self, size_or_stride: int | Sequence[int], string_id: str = "") -> None:
        self._key: tuple[tuple[int, ...], str] | None = None
        if isinstance(size_or_stride, int):
            self._size = size_or_stride
        else:
            self.set_key(size_or_stride, string_id)

    def is_key_set(self) -> bool:
        return self._key is not None

    def set_key(self, stride: Sequence[int], string_id: str = "") -> None:
        """Set what the key names: a stride for each axis, and a word; or both as ``get_key`` returns them."""
        if len(stride) == 2 and isinstance(stride[1], str):
            stride, string_id = stride  # type: ignore[assignment]
        self._key = tuple(map(int, stride)), string_id
        self._size = len(self._key[0]) + 1

    def get_key(self) -> tuple[list[int], str]:
        """(stride for each axis, word)."""
        stride, word = self.name
        return list(stride), word

    def get_tensor_stride(self) -> list[int]:
        """The stride for each axis."""
        return list(self.name[0])

    def get_coordinate_size(self) -> int:
        """D + 1."""
        return self._size

    @property
    def name(self) -> tuple[tuple[int, ...], str]:
        """The stride and the word, which managers keep sites by."""
        if self._key is None:
            raise ValueError("the CoordinateMapKey is not set: a layer or a manager sets it")
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoordinateMapKey):
            return NotImplemented
        return self._key is not None and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        if self._key is None:
            return f"coordinate map key: not set, of {self._size} columns"
        stride, word = self._key
        return f"coordinate map key:{list(stride)}" + (f":{word}" if word else "")
