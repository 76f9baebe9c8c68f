"""Every ``GSB_*`` variable is in one table: it is read through it, told by it, and what is not in it warns."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gnn_sparse_backend import config
from gnn_sparse_backend.compiler.cache import cache_dir
from gnn_sparse_backend.runtime import allocator, pool

ROOT = Path(__file__).parents[1]
# ends in a letter or digit, so that "GSB_*" and "GSB_" are no names
NAME = re.compile(r"\bGSB_(?:[A-Z0-9_]*[A-Z0-9])\b")
READ = {
    config.CACHE_BYTES: "compiler/cache/bound.py",
    config.CACHE_DIR: "compiler/cache/disk.py",
    config.COMPILE: "compiler/cache/background.py",
    config.CUDA_ALIGNMENT: "runtime/layout.py",
    config.CUDA_ARCH: "runtime/devices.py",
    config.CUDA_COMPILER: "compiler/codegen/cuda/machine_code.py",
    config.CUDA_MADE_BY: "compiler/codegen/cuda/library.py",
    config.DEFERRED: "integrations/core/registry.py",
    config.FEW_EDGES: "integrations/few/__init__.py",
    config.LOG: "log.py",
    config.PACK: "compiler/packs/in_force.py",
    config.POOL_BYTES: "runtime/pool.py",
    config.PYG_CACHE_BYTES: "integrations/core/room.py",
    config.REUSE_MEMORY: "runtime/allocator.py",
    config.SAMPLER: "integrations/pyg/sampling.py",
    config.TARGET: "compiler/codegen/cpu/host.py",
    config.TORCHSCRIPT: "integrations/pyg/scripting.py",
    config.TORCHSPARSE: "integrations/torchsparse/conventions.py",
}


def names_in(*folders: str) -> set[str]:
    """Names in all Python files of these folders, but for this one, which has some that do not exist."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py") if file != Path(__file__)]
    assert files
    return {name for file in files for name in NAME.findall(file.read_text(encoding="utf-8"))}


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess:
    """A new process that runs ``code`` with these variables, and no other of ours."""
    import os

    kept = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
    command = [sys.executable, "-W", "always", "-c", code]
    return subprocess.run(command, env=kept | environment, cwd=ROOT, capture_output=True, text=True)


def test_the_tables_have_all_names_and_no_others():
    ours, theirs = {variable.name for variable in config.VARIABLES}, set(config.CHECKOUT)
    assert not ours & theirs
    assert names_in("gnn_sparse_backend") - theirs == ours
    outside = names_in("tests", "benchmarks", "models") - ours
    assert outside == theirs


@pytest.mark.parametrize("variable", config.VARIABLES, ids=lambda v: v.name)
def test_a_variable_is_read_through_its_entry_where_it_says(variable):
    package = ROOT / "gnn_sparse_backend"
    constant = variable.name.removeprefix(config.PREFIX)
    assert f"{constant}.get()" in (package / READ[variable]).read_text()
    module = READ[variable].removesuffix(".py").replace("/", ".")
    assert f"({module})" in variable.read
    for file in package.rglob("*.py"):
        assert f'environ.get("{variable.name}"' not in file.read_text(), file


@pytest.mark.parametrize("variable", config.VARIABLES, ids=lambda v: v.name)
def test_not_set_and_empty_are_the_same(variable, monkeypatch):
    monkeypatch.delenv(variable.name, raising=False)
    assert variable.get() is None
    monkeypatch.setenv(variable.name, "")
    assert variable.get() is None
    monkeypatch.setenv(variable.name, variable.example)
    assert variable.get() is not None, "the example is one"


@pytest.mark.parametrize(
    "variable, text, value",
    [
        (config.CACHE_DIR, "/some/where", "/some/where"),
        (config.CUDA_ALIGNMENT, "256", 256),
        (config.COMPILE, "background", "background"),
        (config.CUDA_ARCH, "sm_90a", "sm_90a"),
        (config.CUDA_COMPILER, "nvcc", "nvcc"),
        (config.LOG, "debug", "debug"),
        (config.POOL_BYTES, "0", 0),
        (config.POOL_BYTES, "1GB", 10**9),
        (config.POOL_BYTES, "1.5 GiB", 3 << 29),
        (config.CACHE_BYTES, "500m", 500 * 10**6),
        (config.PYG_CACHE_BYTES, "64 kb", 64_000),
        (config.PYG_CACHE_BYTES, "7B", 7),
        (config.PYG_CACHE_BYTES, "12345", 12345),
        (config.REUSE_MEMORY, "0", False),
        (config.REUSE_MEMORY, "1", True),
    ],
    ids=lambda value: getattr(value, "name", repr(value)),
)
def test_values(variable, text, value, monkeypatch):
    monkeypatch.setenv(variable.name, text)
    assert variable.get() == value and type(variable.get()) is type(value)


@pytest.mark.parametrize(
    "variable, text",
    [
        (config.COMPILE, "later"),
        (config.CUDA_ALIGNMENT, "8"),
        (config.CUDA_ALIGNMENT, "0"),
        (config.CUDA_ARCH, "90"),
        (config.CUDA_COMPILER, "clang"),
        (config.LOG, "warning"),
        (config.LOG, "INFO"),
        (config.POOL_BYTES, "1XB"),
        (config.POOL_BYTES, "1.5"),
        (config.POOL_BYTES, "GB"),
        (config.POOL_BYTES, "-1"),
        (config.PYG_CACHE_BYTES, "1e9"),
        (config.REUSE_MEMORY, "yes"),
    ],
    ids=lambda value: getattr(value, "name", repr(value)),
)
def test_a_malformed_value_is_quoted_with_what_to_write(variable, text, monkeypatch):
    monkeypatch.setenv(variable.name, text)
    with pytest.raises(ValueError) as caught:
        variable.get()
    said = str(caught.value)
    assert said.startswith(f"{variable.name} must be {variable.values}, got {text!r}; ")
    assert f"; write for example {variable.name}=" in said


def test_a_value_that_is_nearly_one_is_told_which_is_meant(monkeypatch):
    monkeypatch.setenv("GSB_TARGET", "x86-64v3")
    with pytest.raises(ValueError, match="got 'x86-64v3'; did you mean 'x86-64-v3'?"):
        config.TARGET.get()


def test_a_malformed_level_of_the_log_warns_and_the_package_is_imported():
    told = fresh(
        "import gnn_sparse_backend; from gnn_sparse_backend import cli; cli.main(['version'])", GSB_LOG="verbose"
    )
    assert told.returncode == 0 and told.stdout.startswith("gnn-sparse-backend ")
    assert "nothing is logged: GSB_LOG must be one of info, debug, got 'verbose'; write for example" in told.stderr


def test_readers_see_the_present_value(monkeypatch, tmp_path):
    monkeypatch.setenv("GSB_CACHE_DIR", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("GSB_POOL_BYTES", "77")
    assert pool._limit(2) == pool._limit(16) == 77
    monkeypatch.setattr(allocator, "_asked", None)  # what another test asked for goes before the environment
    monkeypatch.setenv("GSB_REUSE_MEMORY", "maybe")
    with pytest.raises(ValueError, match="GSB_REUSE_MEMORY must be 0 or 1, got 'maybe'"):
        allocator.reuse_while_enabled(False)


def test_an_unknown_name_warns_once_and_says_which_is_meant():
    code = "import gnn_sparse_backend, gnn_sparse_backend.log, gnn_sparse_backend.compiler.cache.key"
    told = fresh(code, GSB_POOL_BYTE="1", GSB_XYZZY="1", GSB_DATA="/nowhere", GSB_REUSE_MEMORY="1")
    assert told.returncode == 0
    assert told.stderr.count("UnknownVariableWarning: GSB_") == 2
    assert "GSB_POOL_BYTE is set, but nothing reads it: is GSB_POOL_BYTES meant?" in told.stderr
    assert "GSB_XYZZY is set, but nothing reads it: `gsb doctor` lists the names that there are" in told.stderr


def test_known_names_do_not_warn():
    told = fresh("import gnn_sparse_backend", GSB_DATA="/nowhere", GSB_SIMT="1", GSB_POOL_BYTES="1")
    assert (told.returncode, told.stderr) == (0, "")


def test_the_table_imports_the_standard_library_alone():
    code = (
        "import sys; before = set(sys.modules); import gnn_sparse_backend.config; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "assert new <= sys.stdlib_module_names | {'gnn_sparse_backend'}, new"
    )
    told = fresh(code)
    assert told.returncode == 0, told.stderr


def test_the_table_in_markdown_has_a_row_for_each():
    lines = config.markdown_table().splitlines()
    assert len(lines) == 2 + len(config.VARIABLES)
    for variable, line in zip(config.VARIABLES, lines[2:]):
        assert line.startswith(f"| `{variable.name}` |") and variable.effect in line and line.count("|") == 6
