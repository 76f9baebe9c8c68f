"""``gsb doctor`` tells what works, and its exit code says whether something that kernels rely on is broken."""

import json
import os
import shutil
import subprocess
import sys
import types

import pytest

from gnn_sparse_backend import cli, config
from gnn_sparse_backend.cli import examine
from gnn_sparse_backend.compiler.packs import Pack, packs


@pytest.fixture(autouse=True)
def cache(own_cache, wide_terminal):
    return own_cache


@pytest.fixture
def versions(monkeypatch):
    """A function: these distributions have these versions, and those of None are not installed."""
    real = examine._version
    return lambda told: monkeypatch.setattr(
        examine, "_version", lambda name: told[name] if name in told else real(name)
    )


def report(capsys):
    """(exit code, {(group, name): finding})."""
    code = cli.main(["doctor", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content["healthy"] == (code == 0)
    return code, {(finding["group"], finding["name"]): finding for finding in content["findings"]}


def test_a_healthy_machine(capsys, cache):
    code, findings = report(capsys)
    assert code == 0
    assert findings["cpu", "test kernel"]["state"] == "ok"
    assert findings["kernel cache", "folder"]["text"] == str(cache)
    assert findings["kernel cache", "loads"]["text"] == "a kernel was written, read again and run"
    assert findings["versions", "torch"]["text"] == __import__("torch").__version__
    groups = {"versions", "cpu", "cuda", "threads", "packs", "kernel cache", "settings"}
    assert {group for group, _ in findings} == groups
    assert not cache.exists(), "looking changes nothing"


def test_packs_alone_are_healthy_and_one_that_cannot_be_read_is_a_fault(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(packs, "_loaded", None)
    monkeypatch.setenv("GSB_PACK", str(tmp_path / "none.gsb"))
    code, findings = report(capsys)
    assert code == 1 and "cannot be read" in findings["packs", "GSB_PACK"]["text"]
    monkeypatch.setattr("gnn_sparse_backend.cli.examine.can_compile", lambda: False)
    monkeypatch.setattr(packs, "_loaded", (Pack(tmp_path / "kernels.gsb", "", {}, (), (), {}, b""),))
    code, findings = report(capsys)
    assert code == 0 and "kernels.gsb: 0 kernels" in findings["packs", "kernels.gsb"]["text"]
    for name in (("versions", "apache-tvm"), ("cpu", "test kernel")):
        assert findings[name]["state"] == "absent" and "from packs alone" in findings[name]["text"]


def test_the_table_names_every_finding(capsys):
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in ("apache-tvm-ffi", "features", "nvcc", "pool", "kernel cache", "Everything that kernels rely on works"):
        assert word in text


def test_settings_are_told_with_their_values(capsys, cache, monkeypatch):
    monkeypatch.setenv("GSB_POOL_BYTES", "12345")
    monkeypatch.delenv("GSB_PYG_CACHE_BYTES", raising=False)
    code, findings = report(capsys)
    assert code == 0
    for variable in config.VARIABLES:
        assert findings["settings", variable.name]["state"] == "ok"
        assert variable.effect in findings["settings", variable.name]["text"]
    assert findings["settings", "GSB_CACHE_DIR"]["text"].startswith(f"set: {cache} (")
    assert findings["settings", "GSB_POOL_BYTES"]["text"].startswith("set: 12345 (")
    assert findings["settings", "GSB_PYG_CACHE_BYTES"]["text"].startswith("not set: an eighth of the machine's memory")


def test_a_malformed_setting_is_a_fault_and_an_unknown_one_is_told(capsys, monkeypatch):
    monkeypatch.setenv("GSB_REUSE_MEMORY", "often")
    unknown = config.CUDA_COMPILER.name + "S"
    monkeypatch.setenv(unknown, "nvcc")
    code, findings = report(capsys)
    assert code == 1
    assert findings["settings", "GSB_REUSE_MEMORY"]["state"] == "broken"
    assert "must be 0 or 1, got 'often'" in findings["settings", "GSB_REUSE_MEMORY"]["text"]
    unknown = findings["settings", unknown]
    assert (unknown["state"], unknown["text"]) == ("absent", "set, but nothing reads it; is GSB_CUDA_COMPILER meant?")


def test_a_missing_framework_is_no_fault_and_names_its_extra(capsys, versions):
    versions({"dgl": None, "torch-geometric": None})
    code, findings = report(capsys)
    assert code == 0
    assert findings["versions", "dgl"]["state"] == "absent"
    assert "gnn-sparse-backend[dgl]" in findings["versions", "dgl"]["text"]
    assert "gnn-sparse-backend[pyg]" in findings["versions", "torch-geometric"]["text"]
    assert cli.main(["doctor"]) == 0
    assert "gnn-sparse-backend[dgl]" in capsys.readouterr().out, "the brackets are not taken for markup"


def test_a_build_of_a_framework_by_another_name_is_found(capsys, versions, monkeypatch):
    versions({"spconv": None, "spconv-cu120": "2.3.8"})
    monkeypatch.setattr(examine.importlib.metadata, "packages_distributions", lambda: {"spconv": ["spconv-cu120"]})
    monkeypatch.setitem(sys.modules, "spconv", types.ModuleType("spconv"))
    monkeypatch.setitem(sys.modules, "spconv.pytorch", types.ModuleType("spconv.pytorch"))
    _, findings = report(capsys)
    assert findings["versions", "spconv-cu120"]["text"] == "2.3.8" and ("versions", "spconv") not in findings


def test_a_missing_requirement_is_a_fault(capsys, versions):
    versions({"scipy": None})
    code, findings = report(capsys)
    assert code == 1 and findings["versions", "scipy"]["state"] == "broken"


def test_a_framework_that_does_not_import_is_a_fault(capsys, versions, monkeypatch, tmp_path):
    (tmp_path / "breaks_on_import.py").write_text("raise OSError('libbroken.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(examine, "_OPTIONAL", (("torch-geometric", "breaks_on_import", "pyg"),))
    versions({"torch-geometric": "1.0"})
    code, findings = report(capsys)
    assert code == 1 and "libbroken.so.1" in findings["versions", "torch-geometric"]["text"]


def test_a_folder_that_others_can_write_is_a_fault(capsys, cache):
    cache.mkdir()
    os.chmod(cache, 0o777)
    code, findings = report(capsys)
    assert code == 1
    assert "chmod 700" in findings["kernel cache", "folder"]["text"]
    assert cli.main(["doctor"]) == 1
    assert "broken: kernel cache: folder" in capsys.readouterr().out


def test_a_cache_whose_kernels_do_not_come_back_is_a_fault(capsys, cache, monkeypatch):
    monkeypatch.setattr("gnn_sparse_backend.compiler.cache.store.KernelStore._from_disk", lambda *given, **named: None)
    code, findings = report(capsys)
    assert code == 1 and "each process compiles again" in findings["kernel cache", "loads"]["text"]
    assert not cache.exists(), "looking changes nothing"


def test_a_bad_entry_is_shown(capsys, cache):
    entry = cache / ("a" * 64)
    entry.mkdir(parents=True, mode=0o700)
    os.chmod(cache, 0o700)
    (entry / "manifest.json").write_text("{")
    code, findings = report(capsys)
    assert code == 0 and findings["kernel cache", "bad entry"]["text"].startswith("a" * 64)


def test_a_kernel_with_wrong_numbers_is_a_fault(capsys, monkeypatch):
    with pytest.raises(RuntimeError, match="wrong numbers"):
        examine._check_kernel(lambda n, a, b: None)

    def refuse(function):
        raise RuntimeError("wrong numbers")

    monkeypatch.setattr(examine, "_check_kernel", refuse)
    code, findings = report(capsys)
    assert code == 1 and "wrong numbers" in findings["cpu", "test kernel"]["text"]


def test_module_and_console_script():
    commands = [[sys.executable, "-m", "gnn_sparse_backend"]]
    if shutil.which("gsb"):
        commands.append(["gsb"])
    for command in commands:
        shown = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=300)
        assert shown.returncode == 0 and shown.stdout.startswith("gnn-sparse-backend "), shown
        wrong = subprocess.run([*command, "docter"], capture_output=True, text=True, timeout=300)
        assert wrong.returncode == 2 and "docter" in wrong.stderr
