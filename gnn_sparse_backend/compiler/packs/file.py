"""The file of a pack: a zip archive of libraries and a manifest, with the hash of all its bytes at its end.

    manifest.json            what made it, its targets, and of each kernel identity, target, symbol, size and SHA-256
    <target>/<digest>.so     the libraries, deflated
    (the archive's comment)  "gsb-pack-sha256:" and the SHA-256 of all bytes before the comment

Equal contents are equal bytes. A pack is read once, as a whole, and its hash is compared before anything else of it is
believed; a library is compared with its own when it is first asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...frozen import dataclass
from .errors import PackError

FORMAT = 1
MANIFEST = "manifest.json"
_MARK = b"gsb-pack-sha256:"
_SEAL_BYTES = len(_MARK) + 64
_EPOCH = (1980, 1, 1, 0, 0, 0)


def identity_of(program: str, plan: str, target: str, symbol: str) -> str:
    """What a pack knows a kernel by: all that decides its code but for the versions, which are the pack's."""
    return hashlib.sha256(json.dumps([program, plan, target, symbol]).encode()).hexdigest()


@dataclass(frozen=True)
class PackedTarget:
    """A processor that kernels of a pack are for.

    name: as `gsb pack --target` has it. key: of the target, as kernels are known by it. machine: the architecture.
    needs: features, in Linux's spelling, without which its code does not run. fields: those of a `codegen.Target`.
    """

    name: str
    key: str
    machine: str
    needs: tuple[str, ...]
    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class PackedKernel:
    """One kernel: `identity_of` its parts, the function's name for people and in the library, the target's key, and
    name, size and SHA-256 of the library.
    """

    identity: str
    name: str
    symbol: str
    target: str
    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Pack:
    """A pack of kernels, read and verified.

    path: the file. sha256: the hash of its contents, which `load_pack` compares where it is given. made_by: versions of
    what made it. targets, kernels: what is in it. settings: what the planner went by when the kernels were chosen.
    """

    path: Path
    sha256: str
    made_by: Mapping[str, str]
    targets: tuple[PackedTarget, ...]
    kernels: tuple[PackedKernel, ...]
    settings: Mapping[str, Any] = field(repr=False)
    data: bytes = field(repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return len(self.data)

    @cached_property
    def by_identity(self) -> Mapping[str, PackedKernel]:
        return {kernel.identity: kernel for kernel in self.kernels}

    def read(self, kernel: PackedKernel) -> bytes:
        """The library of a kernel. Raises PackError where it is not the one that the manifest names."""
        # an archive of its own for each: one that threads share has a lock, which a fork may leave locked
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            library = archive.read(kernel.file)
        if hashlib.sha256(library).hexdigest() != kernel.sha256:
            raise PackError(f"{self.path}: the library of kernel {kernel.name!r} is not the one that was packed")
        return library

    def __str__(self) -> str:
        names = ", ".join(target.name for target in self.targets)
        return f"{self.path}: {len(self.kernels)} kernels for {names}, {self.nbytes:,} bytes, sha256 {self.sha256}"


def write_pack(
    path: str | os.PathLike[str],
    made_by: Mapping[str, str],
    targets: Iterable[PackedTarget],
    libraries: Mapping[PackedKernel, bytes],
    settings: Mapping[str, Any],
) -> Pack:
    """Write a pack, whole or not at all, and return it. Raises PackError where the file cannot be written."""
    kernels = sorted(libraries, key=lambda kernel: (kernel.target, kernel.name, kernel.identity))
    manifest = {
        "format": FORMAT,
        "made_by": dict(made_by),
        "targets": [asdict(target) for target in targets],
        "kernels": [asdict(kernel) for kernel in kernels],
        "settings": dict(settings),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b" " * _SEAL_BYTES
        entries = {MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode()}
        for name, data in (entries | {kernel.file: libraries[kernel] for kernel in kernels}).items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED, 9)
    contents = buffer.getvalue()[:-_SEAL_BYTES]
    path = Path(path)
    try:
        _replace(path, contents + _MARK + hashlib.sha256(contents).hexdigest().encode())
    except OSError as error:
        raise PackError(
            f"{path} cannot be written ({error.strerror}): name a file in a folder that you can write"
        ) from None
    return read_pack(path, made_by)


def read_pack(path: str | os.PathLike[str], versions: Mapping[str, str], sha256: str | None = None) -> Pack:
    """Read and verify a pack.

    versions: those that must be the pack's. sha256: what the pack's hash must be.
    Raises PackError, which says what is wrong and what to do.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PackError(f"the pack {path} cannot be read ({error.strerror}); `gsb pack` makes one") from None
    if not data.startswith(b"PK\x03\x04"):
        raise PackError(f"{path} is no pack of kernels; `gsb pack` makes one")
    seal = data[-_SEAL_BYTES:]
    if not seal.startswith(_MARK):
        raise PackError(f"{path} is cut short, or no pack of kernels: copy it again, or make it anew with `gsb pack`")
    found = hashlib.sha256(data[:-_SEAL_BYTES]).hexdigest()
    if found.encode() != seal[len(_MARK) :]:
        raise PackError(
            f"{path} was damaged or changed after it was made: copy it again, or make it anew with `gsb pack`"
        )
    if sha256 is not None and sha256.lower() != found:
        raise PackError(f"{path} is another pack than was asked for: its sha256 is {found}, not {sha256}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = json.loads(archive.read(MANIFEST))
    if manifest["format"] != FORMAT:
        raise PackError(
            f"{path} has format {manifest['format']!r}, and this version reads format {FORMAT}: make it anew with "
            "`gsb pack` of this version, or install the version that made it "
            f"(gnn-sparse-backend {manifest['made_by'].get('gnn_sparse_backend', 'unknown')})"
        )
    made_by = manifest["made_by"]
    other = [
        f"{name} {made_by.get(name)}, here {value}" for name, value in versions.items() if made_by.get(name) != value
    ]
    if other:
        raise PackError(
            f"{path} was made by other versions ({'; '.join(other)}): kernels are called as their own version calls "
            "them. Make it anew with `gsb pack` here, or install those"
        )
    return Pack(
        path,
        found,
        made_by,
        tuple(PackedTarget(**{**each, "needs": tuple(each["needs"])}) for each in manifest["targets"]),
        tuple(PackedKernel(**each) for each in manifest["kernels"]),
        manifest["settings"],
        data,
    )


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)  # other users are to read it
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
