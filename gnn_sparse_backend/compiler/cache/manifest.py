"""The manifest of one entry of the disk cache: what the entry is, and the size and hash of each of its files.

JSON, sealed by a hash over itself, so that a changed byte anywhere is noticed. The seal is against damage and mixed
up files; against an adversary there is the owner-only folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from ...frozen import dataclass
from .errors import BadEntry
from .key import DIGEST

FORMAT = 1
FILE_NAME = "manifest.json"

Data: TypeAlias = bytes


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and SHA-256 of one file."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, data: Data) -> FileRecord:
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """``created`` is UTC in ISO 8601; ``library`` is one of ``files``, which are plain names beside the manifest."""

    key: str
    name: str
    symbol: str
    target: str
    toolchain: Mapping[str, str]
    created: str
    compile_seconds: float
    library: str
    files: Mapping[str, FileRecord]

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(record.bytes for record in self.files.values())

    def to_json(self) -> bytes:
        files = {name: vars(record) for name, record in self.files.items()}
        content = {"format": FORMAT, **vars(self), "toolchain": dict(self.toolchain), "files": files}
        return json.dumps({**content, "seal": _seal(content)}, indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and check a manifest.

        Raises BadEntry with the reason: not JSON, another format, changed since it was sealed, or a file name that
        leaves the folder.
        """
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadEntry(f"its manifest is not JSON ({error})") from None
        if not isinstance(content, dict):
            raise BadEntry("its manifest is not a JSON object")
        if content.get("format") != FORMAT:
            raise BadEntry(f"its manifest has format {content.get('format')!r}, this version reads {FORMAT}")
        if content.pop("seal", None) != _seal(content):
            raise BadEntry("its manifest was changed after it was written")
        del content["format"]
        try:
            content["files"] = {name: FileRecord(**record) for name, record in content["files"].items()}
            manifest = cls(**content)
        except (TypeError, KeyError, AttributeError) as error:
            raise BadEntry(f"its manifest lacks a field or has a strange one ({error})") from None
        manifest._check()
        return manifest

    def _check(self) -> None:
        if not (isinstance(self.key, str) and DIGEST.fullmatch(self.key)):
            raise BadEntry(f"its manifest has the key {self.key!r}")
        for name in self.files:
            if name in ("", ".", "..", FILE_NAME) or "/" in name or "\\" in name or "\0" in name:
                raise BadEntry(f"its manifest has the file name {name!r}")
        if self.library not in self.files:
            raise BadEntry(f"its manifest names the library {self.library!r}, which is not among its files")


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
