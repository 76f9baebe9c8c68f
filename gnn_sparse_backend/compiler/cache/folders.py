"""File-system care for a folder whose files get loaded as code.

Everything that is read must be an ordinary file or folder of this user that nobody else can write. What is read is
checked and hashed through one descriptor; the loader then opens the same path again. Between the two, only this user
(or root) could exchange the file, because only they can write the folder: this is why the folder must be owner-only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ... import system
from ..packs.errors import NoKernelError
from .errors import BadEntry, UnsafeCacheError

STAGING, TRASH = ".staging-", ".trash-"
_STALE_SECONDS = 3600.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ_FLAGS = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)  # a FIFO must not block the opener


def create_root(root: Path) -> None:
    """Make ``root`` with mode 0o700 unless it exists, then check it.

    Raises OSError when it cannot be made, UnsafeCacheError as :func:`check_root`.
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    check_root(root)


def check_root(root: Path) -> bool:
    """Whether ``root`` exists and can be reached; raises UnsafeCacheError when somebody else can put files into it."""
    try:
        status = os.lstat(root)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeCacheError(f"the kernel cache {root} is not a folder; set GSB_CACHE_DIR to a folder of your own")
    fault, remedy = _ownership_fault(status), f"Make it yours alone (chmod 700 {root}) or set"
    if fault is None:
        fault, remedy = _parent_fault(root), "Set"
    if fault is not None:
        raise UnsafeCacheError(
            f"the kernel cache {root} {fault}: loading a kernel from it could run somebody else's "
            f"code. {remedy} GSB_CACHE_DIR to a folder of your own"
        )
    return True


def read_folder(folder: Path) -> list[str]:
    """Names of the files in ``folder``.

    Raises FileNotFoundError when there is none; BadEntry when it is a link or a file, or not this user's alone.
    """
    status = os.lstat(folder)
    if stat.S_ISLNK(status.st_mode):
        raise BadEntry("it is a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise BadEntry("it is not a folder")
    fault = _ownership_fault(status)
    if fault is not None:
        raise BadEntry(f"it {fault}")
    try:
        return sorted(os.listdir(folder))
    except PermissionError as error:
        raise BadEntry(f"it cannot be read ({error.strerror})") from None


def read_file(path: Path) -> bytes:
    """Contents of an ordinary file of this user's that nobody else can write; BadEntry for anything else."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        raise BadEntry(f"its file {path.name} cannot be read ({error.strerror})") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BadEntry(f"its {path.name} is not an ordinary file")
        fault = _ownership_fault(status)
        if fault is not None:
            raise BadEntry(f"its file {path.name} {fault}")
        try:
            return file.read()
        except OSError as error:  # a failing disk
            raise BadEntry(f"its file {path.name} cannot be read ({error.strerror})") from None


def write_file(path: Path, data: bytes) -> None:
    """Create ``path``, which must not exist, readable and writable by its owner only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def make_staging(root: Path) -> Path:
    """A new owner-only folder inside ``root``, which no reader takes for an entry."""
    staging = root / f"{STAGING}{os.getpid()}-{secrets.token_hex(8)}"
    os.mkdir(staging, 0o700)
    return staging


def remove(path: Path) -> None:
    """Take ``path`` (a folder, a file, or a link, which is not followed) out of sight at once, then delete it.

    Raises OSError when it cannot even be renamed.
    """
    trash = path.with_name(f"{TRASH}{os.getpid()}-{secrets.token_hex(8)}")
    os.rename(path, trash)
    if trash.is_dir() and not trash.is_symlink():
        shutil.rmtree(trash, ignore_errors=True)  # what remains is swept later
    else:
        trash.unlink(missing_ok=True)


def sweep(root: Path, older_than: float = _STALE_SECONDS) -> int:
    """Delete what processes that died left behind ``older_than`` seconds ago or more; the number of folders."""
    swept = 0
    for path in root.iterdir():
        if path.name.startswith((STAGING, TRASH)) and _age(path) >= older_than:
            shutil.rmtree(path, ignore_errors=True)
            swept += 1
    return swept


def _age(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:  # its owner finished meanwhile
        return -1.0


def _ownership_fault(status: os.stat_result) -> str | None:
    user = system.user()
    if user is None:
        return None
    if status.st_uid != user:
        return f"belongs to user {status.st_uid}, and this process runs as user {user}"
    if status.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _parent_fault(root: Path) -> str | None:
    """A parent that anybody can write lets anybody exchange the root, unless it is sticky, as /tmp is."""
    for parent in root.parents if system.user() is not None else ():
        mode = os.stat(parent).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"lies in {parent}, which everybody can write (mode {stat.S_IMODE(mode):04o})"
    return None


ROOM = 16 << 20
"""Bytes that a build may need."""
IN_MEMORY = system.MEMORY_FOLDER


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A private folder that a build writes into, which is gone behind it: where temporary files go, else in memory.

    Raises NoKernelError where no folder has room for a build, or can be written, and where it is full meanwhile.
    """
    # not TemporaryDirectory: its finaliser would delete the folder of a running build from a forked child
    folder = _with_room()
    try:
        yield folder
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise _no_room([f"{folder}: {error.strerror}"]) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_room() -> Path:
    why = []
    for parent in (None, IN_MEMORY):
        try:
            folder = Path(tempfile.mkdtemp(prefix="gsb-", dir=parent))
        except OSError as error:
            why.append(str(error))
            continue
        free = shutil.disk_usage(folder).free
        if free >= ROOM:
            return folder
        why.append(f"{folder.parent} has {free:,} bytes left")
        shutil.rmtree(folder, ignore_errors=True)
    raise _no_room(why)


def _no_room(why: list[str]) -> NoKernelError:
    return NoKernelError(
        f"there is no room to make a kernel in ({'; '.join(why)}): set TMPDIR to a folder that you can write, with "
        f"{ROOM >> 20} MB of room"
    )
