"""The error of this folder."""

from __future__ import annotations


class BuildError(RuntimeError):
    """A kernel could not be compiled, linked or loaded.

    Attributes
    ----------
    kernel : name of the function that failed (or the file that did not load).
    source : its text (TVMScript or CUDA); empty for a file.
    """

    def __init__(self, kernel: str, reason: str, source: str = "") -> None:
        super().__init__(
            f"kernel {kernel!r}: {reason}" + (f"\n--- source of {kernel!r} ---\n{source}" if source else "")
        )
        self.kernel = kernel
        self.source = source
        self._given = kernel, reason, source

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str, str]]:
        return type(self), self._given
