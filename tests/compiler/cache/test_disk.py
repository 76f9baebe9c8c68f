"""The disk cache gives the right kernel or none: every kind of damage is seen, removed, reported and rebuilt."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
import warnings
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler.cache import (
    DiskCache,
    KernelBuildError,
    KernelCacheWarning,
    KernelKey,
    KernelStore,
    UnsafeCacheError,
    cache_dir,
    folders,
)
from gnn_sparse_backend.compiler.cache.built import Built
from gnn_sparse_backend.compiler.cache.manifest import FileRecord, Manifest
from gnn_sparse_backend.compiler.packs.toolchain import toolchain
from tests.compiler.cache.helpers import (
    PLAN,
    PROGRAM,
    TARGET,
    CopyBuild,
    assert_scales,
    finish_worker,
    get,
    key_of,
    load,
    start_worker,
)


@pytest.fixture
def entry(root, new_store, libraries) -> Path:
    """An entry written by another process, so to say: this one has not loaded it."""
    folder = libraries[2.0].parent / "built"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    name = CopyBuild(libraries[2.0])(folder)
    (folder / "program.py").write_text(PROGRAM)
    DiskCache(root).store(key_of(), Built.collect(folder, name), "scale", 0.25)
    assert DiskCache(root).verify() == []
    return root / key_of().digest


def replace(path: Path, data: bytes) -> None:
    """Exchange a file; writing into a library that is loaded would change the running code."""
    path.unlink()
    path.write_bytes(data)
    path.chmod(0o600)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    replace(path, bytes(data))


def reseal(entry: Path, **changes) -> None:
    """A manifest that is in itself right, and says something else."""
    path = entry / "manifest.json"
    replace(path, Manifest(**{**vars(Manifest.from_json(path.read_bytes())), **changes}).to_json())


def change_format(entry: Path) -> None:
    content = json.loads((entry / "manifest.json").read_text())
    replace(entry / "manifest.json", json.dumps({**content, "format": 99}).encode())


def use_symbolic_link(path: Path) -> None:
    elsewhere = path.with_name("moved-" + path.name) if path.suffix else path.parent / "elsewhere"
    if path.suffix:
        elsewhere = path.parent.parent / elsewhere.name
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


DAMAGE = {
    "flipped byte in the library": (lambda e: flip(e / "kernel.so"), "hash of its file kernel.so"),
    "flipped byte in a text": (lambda e: flip(e / "program.py"), "hash of its file program.py"),
    "truncated library": (
        lambda e: replace(e / "kernel.so", (e / "kernel.so").read_bytes()[:-100]),
        "bytes instead of",
    ),
    "empty library": (lambda e: replace(e / "kernel.so", b""), "0 bytes instead of"),
    "library gone": (lambda e: (e / "kernel.so").unlink(), "differ in 'kernel.so'"),
    "manifest gone": (lambda e: (e / "manifest.json").unlink(), "manifest.json cannot be read"),
    "manifest empty": (lambda e: replace(e / "manifest.json", b""), "not JSON"),
    "manifest flipped": (lambda e: flip(e / "manifest.json"), "manifest"),
    "manifest deeply nested": (lambda e: replace(e / "manifest.json", b"[" * 100_000), "not JSON"),
    "manifest a list": (lambda e: replace(e / "manifest.json", b"[1]"), "not a JSON object"),
    "manifest altered": (
        lambda e: replace(e / "manifest.json", (e / "manifest.json").read_bytes().replace(b'"scale"', b'"other"')),
        "changed after it was written",
    ),
    "manifest of another format": (change_format, "has format 99, this version reads 1"),
    "foreign version": (lambda e: reseal(e, toolchain={**toolchain(), "tvm": "0.1"}), "was written by .*'tvm': '0.1'"),
    "foreign target": (lambda e: reseal(e, target="llvm-other"), "target is 'llvm-other'"),
    "foreign symbol": (lambda e: reseal(e, symbol="other"), "symbol is 'other'"),
    "foreign key": (lambda e: reseal(e, key="0" * 64), "entry of another key, 0000"),
    "file name that leaves the folder": (
        lambda e: reseal(e, library="../x.so", files={"../x.so": FileRecord(0, "")}),
        "'../x.so'",
    ),
    "added file": (lambda e: (e / "extra.so").write_bytes(b""), "differ in 'extra.so'"),
    "library is a link": (lambda e: use_symbolic_link(e / "kernel.so"), "kernel.so cannot be read"),
    "library is a FIFO": (lambda e: fifo(e / "kernel.so"), "not an ordinary file"),
    "library group-writable": (lambda e: (e / "kernel.so").chmod(0o660), "can be written by others"),
    "entry is a link": (use_symbolic_link, "it is a symbolic link"),
    "entry group-writable": (lambda e: e.chmod(0o770), "can be written by others"),
    "entry is a file": (lambda e: (shutil.rmtree(e), e.write_text("x")), "not a folder"),
    "entry is empty": (lambda e: (shutil.rmtree(e), e.mkdir(0o700)), "manifest.json cannot be read"),
}


@pytest.mark.short(20)
@pytest.mark.parametrize("damage", DAMAGE)
def test_bad_entry_is_reported_and_rebuilt(damage, entry, root, new_store, build):
    apply, reason = DAMAGE[damage]
    apply(entry)
    store = new_store()
    with pytest.warns(KernelCacheWarning, match=f"(?s){reason}") as caught:
        kernel = get(store, build)
    assert len(caught) == 1 and str(entry) in str(caught[0].message)
    assert (build.calls, kernel.origin) == (1, "compiled")
    assert store.stats().rejected == 1
    assert_scales(kernel)

    assert DiskCache(root).verify() == []
    assert entry.is_dir() and not entry.is_symlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get(new_store(), build).origin == "disk"
    assert build.calls == 1


# A rightly sealed manifest of another toolchain, target or symbol is a problem only for whoever asks for this key.
@pytest.mark.parametrize("damage", sorted(set(DAMAGE) - {"foreign version", "foreign target", "foreign symbol"}))
def test_verify_names_the_problem_and_changes_nothing(damage, entry, root):
    apply, _reason = DAMAGE[damage]
    apply(entry)
    problems = DiskCache(root).verify()
    assert len(problems) == 1 and problems[0].startswith(entry.name)
    assert os.path.lexists(entry)
    assert DiskCache(root).verify() == problems


def test_link_is_removed_and_what_it_points_to_is_not(entry, new_store, build):
    use_symbolic_link(entry)
    target = entry.resolve()
    with pytest.warns(KernelCacheWarning):
        get(new_store(), build)
    assert (target / "kernel.so").is_file()


def test_verified_library_that_does_not_load_is_rebuilt(root, new_store, build, tmp_path):
    """For example one for a loader or a CPU that the key could not tell apart."""
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "kernel.so").write_bytes(b"not a library")
    DiskCache(root).store(key_of(), Built.collect(folder, "kernel.so"), "scale", 0.1)
    with pytest.warns(KernelCacheWarning, match="cannot be loaded"):
        assert_scales(get(new_store(), build))
    assert build.calls == 1


def test_entry_on_disk(entry, root):
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in entry.iterdir())
    [manifest] = DiskCache(root).entries()
    assert (manifest.key, manifest.name, manifest.target, manifest.compile_seconds) == (
        entry.name,
        "scale",
        TARGET,
        0.25,
    )
    assert manifest.size == sum(path.stat().st_size for path in entry.iterdir() if path.name != "manifest.json")
    assert dict(manifest.toolchain) == dict(toolchain())


def test_new_root_is_private_whatever_the_umask(root, new_store, build):
    before = os.umask(0)
    try:
        get(new_store(), build)
    finally:
        os.umask(before)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert get(new_store(), build).origin == "disk"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_root_that_others_can_write_is_refused(mode, entry, root, new_store, build):
    store = new_store()
    root.chmod(mode)
    with pytest.raises(UnsafeCacheError, match=f"can be written by others.*chmod 700 {root}"):
        DiskCache(root)
    with pytest.warns(KernelCacheWarning, match=f"chmod 700 {root}.*kernels stay in memory"):
        assert_scales(get(store, build))  # it was safe when the store was made
    assert build.calls == 1 and get(store, build).origin == "memory"


def test_root_of_another_user_is_refused(root, monkeypatch):
    root.mkdir(0o700)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(UnsafeCacheError, match=f"belongs to user {mine}, and this process runs as user {mine + 1}"):
        DiskCache(root)


def test_root_in_a_folder_that_everybody_can_write_is_refused(root):
    root.mkdir(0o700)
    root.parent.chmod(0o777)
    with pytest.raises(UnsafeCacheError, match="which everybody can write"):
        DiskCache(root)
    root.parent.chmod(0o1777)  # sticky: nobody else can rename the root
    DiskCache(root)


def test_root_that_is_a_file_is_refused(root):
    root.write_text("")
    with pytest.raises(UnsafeCacheError, match="is not a folder"):
        DiskCache(root)


def test_link_to_the_root_is_the_users_business(root, tmp_path, build):
    (tmp_path / "real").mkdir(0o700)
    root.symlink_to(tmp_path / "real")
    assert get(KernelStore(DiskCache(root), load), build).origin == "compiled"
    (tmp_path / "real").chmod(0o770)
    with pytest.raises(UnsafeCacheError):
        DiskCache(root)


@pytest.mark.slow
@pytest.mark.parametrize("occupied", [False, True], ids=["empty", "with an entry"])
def test_read_only_root(occupied, libraries):
    """In a process without root's privileges: what is there is used, the rest stays in memory, with one warning."""
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    base = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        library = shutil.copy(libraries[2.0], base / "library.so")
        os.chown(base, user, -1)
        report = finish_worker(
            start_worker(
                "use_read_only_root", root=str(base / "cache"), library=str(library), user=user, occupied=occupied
            )
        )
    finally:
        with contextlib.suppress(FileNotFoundError):
            (base / "cache").chmod(0o700)
        shutil.rmtree(base)
    assert report["origins"] == ["disk" if occupied else "memory", "memory"]
    assert len(report["warnings"]) == 1 and "cannot be written" in report["warnings"][0]
    assert report["unsaved"] == (1 if occupied else 2)


def test_full_disk(root, new_store, build, monkeypatch):
    def write_half(path, data):
        path.write_bytes(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = new_store()
    monkeypatch.setattr(folders, "write_file", write_half)
    with pytest.warns(KernelCacheWarning, match="No space left on device") as caught:
        kernels = [get(store, build, program) for program in ("first", "second")]
    assert len(caught) == 1
    assert [kernel.origin for kernel in kernels] == ["memory", "memory"]
    for kernel in kernels:
        assert_scales(kernel)
    assert DiskCache(root).entries() == [] and list(root.glob(".staging-*")) == []


def test_root_that_cannot_be_made(tmp_path, build):
    (tmp_path / "file").write_text("")
    store = KernelStore(DiskCache(tmp_path / "file" / "cache"), load)
    with pytest.warns(KernelCacheWarning, match="cannot be written"):
        assert get(store, build).origin == "memory"


@pytest.mark.parametrize("left", ["nothing", "no function", "no library", "outside"])
def test_build_that_breaks_its_contract(left, root, new_store, libraries, tmp_path):
    def build(folder):
        if left == "outside":
            shutil.copy(libraries[2.0], tmp_path / "kernel.so")
            return tmp_path / "kernel.so"
        if left != "nothing":
            shutil.copy(libraries[2.0], folder / "kernel.so")
        if left == "no library":
            (folder / "kernel.so").write_text("text")
        return "kernel.so"

    store, options = new_store(), {"symbol": "other"} if left == "no function" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelCacheWarning)
        with pytest.raises(KernelBuildError, match="cannot be loaded" if left.startswith("no ") else "must return"):
            store.get(PROGRAM, PLAN, TARGET, build, **options)
    assert DiskCache(root).entries() == []


def test_failed_build_leaves_nothing_and_may_be_tried_again(root, new_store, build):
    def broken(folder):
        (folder / "kernel.so").write_bytes(b"half")
        raise ZeroDivisionError("in the compiler")

    store = new_store()
    with pytest.raises(ZeroDivisionError):
        get(store, broken)
    assert store.stats().compiles == 0 and DiskCache(root).entries() == []
    assert get(store, build).origin == "compiled"


def test_clear_leaves_strangers_alone(entry, root, new_store, build):
    get(new_store(), build, "another program")
    (root / ".staging-1-dead").mkdir()
    (root / "mine.txt").write_text("kept")
    cache = DiskCache(root)
    assert cache.clear() == 2
    assert cache.entries() == [] and cache.clear() == 0
    assert sorted(path.name for path in root.iterdir()) == [".locks", "mine.txt"]
    assert list((root / ".locks").iterdir()) == []
    assert get(new_store(), build).origin == "compiled"


def test_no_root_no_entries(root):
    cache = DiskCache(root)
    assert (cache.entries(), cache.verify(), cache.clear()) == ([], [], 0)
    assert not root.exists()


def test_entries_of_other_versions_live_side_by_side(entry, root, libraries, tmp_path):
    other = KernelKey(PROGRAM, PLAN, TARGET, toolchain={**toolchain(), "tvm": "0.1"})
    (tmp_path / "built").mkdir()
    name = CopyBuild(libraries[2.0])(tmp_path / "built")
    cache = DiskCache(root)
    cache.store(other, Built.collect(tmp_path / "built", name), "scale", 0.1)
    assert len(cache.entries()) == 2 and cache.verify() == []
    assert cache.load(key_of()).folder != cache.load(other).folder


def test_default_root(monkeypatch, tmp_path):
    monkeypatch.setenv("GSB_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_dir() == tmp_path / "chosen"
    assert DiskCache().root == tmp_path / "chosen"
    monkeypatch.delenv("GSB_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir().name == "gnn_sparse_backend"
