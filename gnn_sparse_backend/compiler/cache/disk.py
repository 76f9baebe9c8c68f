"""The disk cache: one folder per key, written aside and renamed into place, verified before anything is loaded.

    root/                        owner-only (0o700), else refused
      <key>/                     64 hexadecimal digits
        manifest.json            what it is; size and SHA-256 of every other file
        kernel.so                the library (the manifest has its name)
        program.py, plan.txt     texts for inspection
      beside/<key>/              files that are no kernels (`beside`)
      .locks/<key>.lock          held by the process that compiles the key
      .locks/prune.lock          held by the process that makes room (`bound`)
      .staging-*, .trash-*       entries being written or deleted; never read

A cache may fail to help; it never gives a wrong kernel and never stops the program. A damaged or foreign entry is
removed, reported (:class:`KernelCacheWarning`) and rebuilt. Where the root cannot be written, kernels stay in memory.
The one refusal is a root that somebody else can write (:class:`UnsafeCacheError`), with which a store keeps kernels in
memory, too. Entries that were not used for longest go where all take more room than `bound.bound`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from ...config import CACHE_DIR
from ...deferred import filelock
from ...frozen import dataclass
from ..packs.toolchain import toolchain
from . import bound, folders
from .built import Built
from .counts import Counts
from .errors import BadEntry, KernelCacheWarning
from .key import DIGEST, KernelKey
from .manifest import FILE_NAME, FileRecord, Manifest

BESIDE, LOCKS, PROGRAM = "beside", ".locks", "program.py"
_LOCK_NAME = re.compile(r"(?:[0-9a-f]{64}|prune)\.lock")


def cache_dir() -> Path:
    """The default root: ``GSB_CACHE_DIR`` where it is set, else the user's cache folder of the platform."""
    chosen = CACHE_DIR.get()
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("gnn_sparse_backend"))


@dataclass(frozen=True)
class Entry:
    """A verified entry: its files had the sizes and hashes of its manifest when it was read."""

    folder: Path
    manifest: Manifest
    texts: Mapping[str, str]

    @property
    def library(self) -> Path:
        return self.folder / self.manifest.library


class DiskCache:
    """Kernels on disk, shared by all processes of one user.

    ``root``: the folder, :func:`cache_dir` by default; made at the first write. ``lock_timeout``: seconds to wait for
    another process that compiles the same kernel before compiling it here too. A process that dies releases its lock
    at once; the timeout is for one that hangs.

    Raises UnsafeCacheError, at construction and at each use, for a root that others can write or own.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, lock_timeout: float = 60.0) -> None:
        # The real path: a link above the root may be the user's own arrangement; its end is what gets checked.
        self.root = Path(os.path.realpath(cache_dir() if root is None else root))
        self.lock_timeout = lock_timeout
        self._counts = Counts("stores", "rejected", "lost_races", "lock_timeouts", "unsaved", "evicted")
        self._warned_unwritable = False
        self._unseen: int | None = None  # bytes written since this process looked for room; None before it has
        folders.check_root(self.root)

    @property
    def stats(self) -> dict[str, int]:
        """Counts since construction.

        ``stores`` entries written, ``rejected`` bad entries met, ``lost_races`` entries that another process had
        written first, ``lock_timeouts`` waits given up, ``unsaved`` kernels that could not be written, ``evicted``
        entries that went to make room.
        """
        return self._counts.snapshot()

    def load(self, key: KernelKey, *, repair: bool = False) -> Entry | None:
        """The verified entry of ``key``, or None where there is none or it is bad.

        With ``repair``, which wants the lock of the key, a bad entry is removed, counted and reported.
        """
        if not folders.check_root(self.root):
            return None
        try:
            entry = _read(self.root / key.digest)
            _check_identity(entry.manifest, key)
        except FileNotFoundError:
            return None
        except BadEntry as problem:
            if repair:
                self.reject(key, str(problem))
            return None
        bound.note_use(entry.folder)
        return entry

    def reject(self, key: KernelKey, reason: str) -> None:
        """Remove the entry of ``key``, count it, and warn with ``reason``."""
        folder = self.root / key.digest
        try:
            folders.remove(folder)
            outcome = "it was removed"
        except FileNotFoundError:
            return
        except OSError as error:
            outcome = f"it cannot be removed ({error.strerror})"
        self._counts.add("rejected")
        _warn(f"kernel cache entry {folder} is bad: {reason}; {outcome}")

    def store(self, key: KernelKey, built: Built, name: str, compile_seconds: float) -> Entry | None:
        """Keep what a build left; the verified entry, or None where it cannot be kept.

        The entry appears whole or not at all. If another process was first, its entry is returned. Older ones go where
        there is no room for it.

        Raises ValueError for a ``GSB_CACHE_BYTES`` that is no number of bytes.
        """
        manifest = Manifest(
            key=key.digest,
            name=name,
            symbol=key.symbol,
            target=key.target,
            toolchain=key.toolchain,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            compile_seconds=compile_seconds,
            library=built.library,
            files={file: FileRecord.of(data) for file, data in built.files.items()},
        )
        try:
            folders.create_root(self.root)
            self._make_room(manifest.size)
            staging = folders.make_staging(self.root)
            try:
                for file, data in {**built.files, FILE_NAME: manifest.to_json()}.items():
                    folders.write_file(staging / file, data)
                self._publish(key, staging)
            finally:
                shutil.rmtree(staging, ignore_errors=True)  # renamed away on success
        except OSError as error:
            self._counts.add("unsaved")
            self._warn_unwritable(error)
            return None
        return self.load(key)

    @contextlib.contextmanager
    def lock(self, key: KernelKey) -> Iterator[None]:
        """Hold the lock of ``key`` among processes, if it can be had within the timeout; go on without it otherwise.

        Without it two processes may compile the same kernel; the rename settles which entry stays.
        """
        with contextlib.ExitStack() as held:
            try:
                folders.create_root(self.root)
                os.makedirs(self.root / LOCKS, mode=0o700, exist_ok=True)
                lock = filelock.FileLock(self._lock_path(key.digest), timeout=self.lock_timeout, mode=0o600)
                held.enter_context(lock)
            except filelock.Timeout:
                self._counts.add("lock_timeouts")
                _warn(
                    f"another process has held {self._lock_path(key.digest)} for {self.lock_timeout:g} s; "
                    "compiling without waiting for it"
                )
            except (OSError, NotImplementedError) as error:
                # A folder or file system without locks: whether that matters, the write will tell.
                self._warn_unwritable(error)
            yield

    def entries(self) -> list[Manifest]:
        """Manifests of the entries that have a readable one, oldest first. Their files are not hashed."""
        found = []
        for folder in self._entry_folders():
            try:
                folders.read_folder(folder)
                found.append(_read_manifest(folder))
            except (BadEntry, FileNotFoundError):
                continue  # verify() reports these
        return sorted(found, key=lambda manifest: (manifest.created, manifest.key))

    def count(self) -> int:
        """The number of entries, of which nothing is read."""
        return len(self._entry_folders())

    def programs(self, entries: Iterable[Path]) -> list[tuple[Manifest, str]]:
        """Manifest and program of each entry that has a readable manifest, in their order. Files are not hashed."""
        found = []
        for folder in entries:
            with contextlib.suppress(BadEntry, OSError):
                folders.read_folder(folder)
                manifest = _read_manifest(folder)
                found.append((manifest, (folder / PROGRAM).read_text("utf-8") if PROGRAM in manifest.files else ""))
        return found

    def verify(self) -> list[str]:
        """Read and hash every file of every entry; one line per problem. Changes nothing.

        Entries of other versions of the package or of TVM are no problem: their keys keep them apart.
        """
        problems = []
        for folder in self._entry_folders():
            try:
                _read(folder)
            except BadEntry as problem:
                problems.append(f"{folder.name}: {problem}")
            except FileNotFoundError:
                continue  # removed by another process meanwhile
        return problems

    def clear(self) -> int:
        """Delete all entries, leftovers and locks; the number of entries. Other files in the root are left alone."""
        if not folders.check_root(self.root):
            return 0
        removed = 0
        for folder in self._entry_folders():
            with contextlib.suppress(FileNotFoundError):
                folders.remove(folder)
                removed += 1
        folders.sweep(self.root, older_than=0.0)
        shutil.rmtree(self.root / BESIDE, ignore_errors=True)
        locks = self.root / LOCKS
        for path in locks.iterdir() if locks.is_dir() else ():
            if _LOCK_NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)
        return removed

    def _publish(self, key: KernelKey, staging: Path) -> None:
        """Rename ``staging`` to its final name; leave it where a good entry already has that name."""
        target = self.root / key.digest
        try:
            os.rename(staging, target)
        except OSError:
            if not os.path.lexists(target):
                raise
            if self.load(key, repair=True) is not None:
                self._counts.add("lost_races")
                return
            os.rename(staging, target)
        self._counts.add("stores")

    def _entry_folders(self) -> list[Path]:
        if not folders.check_root(self.root):
            return []
        return sorted(path for path in self.root.iterdir() if DIGEST.fullmatch(path.name))

    def _lock_path(self, digest: str) -> Path:
        return self.root / LOCKS / f"{digest}.lock"

    def prune(self, most: int | None = None, unused_days: float = 0.0) -> bound.Pruned | None:
        """Remove entries of other versions that were not used for some days, and those not used for longest until all
        take ``most`` bytes, by default `bound.bound`; None where another process is at it.

        Raises OSError where the folder cannot be read or written.
        """
        if not folders.check_root(self.root):
            return bound.Pruned(0, 0, 0, bound.Usage(()))
        folders.sweep(self.root)
        limit = bound.bound() if most is None else most
        done = bound.prune(self.root, self.root / LOCKS, limit, _is_outdated, unused_days)
        for _ in range(0 if done is None else done.outdated + done.oldest):
            self._counts.add("evicted")
        return done

    def _make_room(self, size: int) -> None:
        """Prune before the first entry of this process, and behind each share of the bound that it has written."""
        first = self._unseen is None
        self._unseen = size + (self._unseen or 0)
        if first:
            folders.sweep(self.root)
        if (first and not bound.looked_lately(self.root / LOCKS)) or self._unseen > bound.SHARE * bound.bound():
            self._unseen = size
            with contextlib.suppress(OSError, NotImplementedError):  # whether that matters, the write will tell
                self.prune(unused_days=bound.UNUSED_DAYS)

    def _warn_unwritable(self, error: Exception) -> None:
        if not self._warned_unwritable:
            self._warned_unwritable = True
            _warn(
                f"the kernel cache {self.root} cannot be written ({error}); kernels stay in memory and are compiled "
                "again by each process. Set GSB_CACHE_DIR to a folder with room that you can write"
            )


def _read(folder: Path) -> Entry:
    """Read and verify one entry; BadEntry says what is wrong, FileNotFoundError that there is none."""
    present = folders.read_folder(folder)
    manifest = _read_manifest(folder)
    expected = sorted([*manifest.files, FILE_NAME])
    if present != expected:
        strange = sorted(set(present) ^ set(expected))
        raise BadEntry(f"its files and its manifest differ in {', '.join(map(repr, strange))}")
    files = {}
    for name, record in manifest.files.items():
        data = folders.read_file(folder / name)
        found = FileRecord.of(data)
        if found.bytes != record.bytes:
            raise BadEntry(f"its file {name} has {found.bytes} bytes instead of {record.bytes}")
        if found != record:
            raise BadEntry(f"the hash of its file {name} is not the one in its manifest")
        files[name] = data
    try:
        return Entry(folder, manifest, Built(manifest.library, files).texts)
    except UnicodeDecodeError as error:
        raise BadEntry(f"one of its texts is not UTF-8 ({error})") from None


def _is_outdated(folder: Path) -> bool:
    """Whether an entry is of another version of the package or of TVM, or of nobody's."""
    try:
        return dict(_read_manifest(folder).toolchain) != dict(toolchain())
    except (BadEntry, OSError):
        return True


def _read_manifest(folder: Path) -> Manifest:
    manifest = Manifest.from_json(folders.read_file(folder / FILE_NAME))
    if manifest.key != folder.name:
        raise BadEntry(f"it is the entry of another key, {manifest.key}")
    return manifest


def _check_identity(manifest: Manifest, key: KernelKey) -> None:
    """The digest already covers these fields; an entry where they differ was not written by this package."""
    for field in ("target", "symbol"):
        if getattr(manifest, field) != getattr(key, field):
            raise BadEntry(f"its {field} is {getattr(manifest, field)!r} instead of {getattr(key, field)!r}")
    if dict(manifest.toolchain) != dict(key.toolchain):
        raise BadEntry(f"it was written by {dict(manifest.toolchain)}, this is {dict(key.toolchain)}")


def _warn(message: str) -> None:
    warnings.warn(message, KernelCacheWarning, stacklevel=3)
