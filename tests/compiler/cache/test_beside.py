"""What is no kernel and is kept beside them: made once, verified, made again where it was damaged."""

import pytest

from gnn_sparse_backend.compiler.cache.beside import keep
from gnn_sparse_backend.compiler.cache.disk import DiskCache
from gnn_sparse_backend.compiler.cache.errors import KernelCacheWarning
from gnn_sparse_backend.compiler.codegen.cpu import host, launcher


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Files are kept in a folder of this test's own; the list has the names of those that were made."""
    made = []

    def keeping(name, decided_by, make):
        def making(folder):
            made.append(name)
            return make(folder)

        return keep(DiskCache(tmp_path), name, decided_by, making)

    for module in (host, launcher):
        monkeypatch.setattr(module, "kept", keeping)
    return made


def test_the_processor_is_what_it_was(kept, monkeypatch):
    found = [host.native_target.__wrapped__() for _ in range(2)]
    assert found[0] == found[1] == host._found() and kept == ["host"]
    monkeypatch.setattr(host, "processor_model", lambda: ["model name : another"])
    host.native_target.__wrapped__()
    assert kept == ["host", "host"]


def test_functions_are_compiled_once_and_again_where_their_file_is_damaged(kept, tmp_path):
    three = launcher.NativeText(
        "three",
        """
define dllexport i32 @__tvm_ffi_three(ptr %self, ptr %arguments, i32 %count, ptr %result) {
  %value = getelementptr { i32, i32, i64 }, ptr %result, i32 0, i32 2
  store i32 1, ptr %result
  store i64 3, ptr %value
  ret i32 0
}
""",
    )
    assert [launcher.load_text(three).get_function("three")() for _ in range(2)] == [3, 3]
    assert kept.count("three") == 1
    (library,) = tmp_path.rglob("*.so")
    content = library.read_bytes()
    library.unlink()  # what is loaded from it stays whole
    library.write_bytes(content[:-100])
    library.chmod(0o600)
    with pytest.warns(KernelCacheWarning, match="three.so has .* bytes instead of"):
        assert launcher.load_text(three).get_function("three")() == 3
    assert kept.count("three") == 2


def test_they_are_no_kernels_and_go_with_them(kept, tmp_path):
    launcher.load_text(launcher.LAUNCHER)
    disk = DiskCache(tmp_path)
    assert disk.entries() == [] and list(tmp_path.rglob("*.so"))
    disk.clear()
    assert not list(tmp_path.rglob("*.so"))
