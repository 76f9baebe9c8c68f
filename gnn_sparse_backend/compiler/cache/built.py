"""What a build callback left in its folder."""

from __future__ import annotations

import os
from pathlib import Path

from ...frozen import dataclass
from .errors import KernelBuildError

# Files that are kept beside the library, for people: texts of stages, in UTF-8. The rest is scratch.
TEXT_SUFFIXES = (".py", ".txt", ".ll", ".s", ".cu", ".ptx")


@dataclass(frozen=True)
class Built:
    """``library`` is the name of one of ``files`` (name to content); the other files are texts."""

    library: str
    files: dict[str, bytes]

    @property
    def texts(self) -> dict[str, str]:
        """Texts by stem: a file ``<stage>.py`` has the text of that stage."""
        return {Path(name).stem: data.decode() for name, data in self.files.items() if name != self.library}

    @classmethod
    def collect(cls, folder: Path, returned: str | os.PathLike[str]) -> Built:
        """Read the library that a build says it left in ``folder`` (name, or path inside it), and the texts beside it.

        Raises KernelBuildError when there is no such library, and for texts that are not UTF-8 or share a stem.
        """
        is_path = isinstance(returned, (str, os.PathLike))
        library = folder / returned if is_path else folder
        if library.parent.resolve() != folder.resolve() or not library.is_file():
            left = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
            raise KernelBuildError(
                "a build must return the name of the library file that it left in its folder; this "
                f"one returned {returned!r} and left {left}"
            )
        files = {library.name: library.read_bytes()}
        stems: dict[str, str] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix not in TEXT_SUFFIXES or path.name == library.name:
                continue
            if path.stem in stems:
                raise KernelBuildError(
                    f"a build left two texts of the stage {path.stem!r}: {stems[path.stem]} and {path.name}"
                )
            stems[path.stem] = path.name
            files[path.name] = path.read_bytes()
            try:
                files[path.name].decode()
            except UnicodeDecodeError as error:
                raise KernelBuildError(f"the text {path.name} that a build left is not UTF-8 ({error})") from None
        return cls(library.name, files)
