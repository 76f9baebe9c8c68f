"""The wheel: what is in it, what pip makes of it, and that it works away from the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import gnn_sparse_backend

pytestmark = pytest.mark.wheel

SCRIPTS = Path(__file__).parent
ROOT = SCRIPTS.parents[1]
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"


def run(*command, **options) -> str:
    """What a command prints; fails with all of its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment:
    """A virtual environment that knows neither the checkout nor the packages around it."""

    def __init__(self, folder: Path):
        self.folder = folder
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        self.python = folder / "venv" / "bin" / "python"
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GSB_"))}
        self.variables["GSB_CACHE_DIR"] = str(folder / "kernels")

    def pip(self, *arguments) -> str:
        return run(sys.executable, "-m", "pip", "--python", self.python, *arguments, env=self.variables)

    def would_install(self, requirement: str) -> dict[str, str]:
        """Names and versions that `pip install` of a requirement would bring here, without any constraint."""
        report = json.loads(self.pip("install", "--quiet", "--dry-run", "--report", "-", requirement))
        return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in report["install"]}

    def run(self, *command) -> str:
        """What a command that is installed here prints."""
        return run(self.python.with_name(command[0]), *command[1:], env=self.variables, cwd=self.folder)


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The folder with the sdist and the wheel: that of `make wheel`, or built here."""
    if "DIST" in os.environ:
        return Path(os.environ["DIST"])
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir())
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (found,) = dist.glob("*.whl")
    return found.resolve()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Environment:
    """With PyTorch alone, as a user has it who then installs this package."""
    environment = Environment(tmp_path_factory.mktemp("fresh"))
    environment.pip("install", "--quiet", "-c", CONSTRAINTS, "torch")
    return environment


@pytest.fixture(scope="module")
def installed(fresh, wheel) -> Environment:
    """With the wheel and PyG."""
    fresh.pip("install", "--quiet", "-c", CONSTRAINTS, f"{wheel}[pyg]")
    return fresh


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = ROOT / "gnn_sparse_backend"
    expected = {path.relative_to(ROOT).as_posix() for path in package.rglob("*.py")}
    expected.add("gnn_sparse_backend/py.typed")
    metadata = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if not name.startswith(metadata)} == expected
    assert f"{metadata}licenses/LICENSE" in names


def test_the_sdist_holds_what_builds_and_tests_the_package(dist):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    for name in ("LICENSE", "CHANGELOG.md", "Makefile", "pyproject.toml", "requirements/constraints.txt"):
        assert name in names
    assert Path(__file__).relative_to(ROOT).as_posix() in names
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.mark.parametrize("extras", ["", "[pyg]", "[dgl,pyg]", "[spconv]"])
def test_the_users_own_torch_stays(fresh, wheel, extras):
    brought = fresh.would_install(f"{wheel}{extras}")
    assert "gnn-sparse-backend" in brought
    assert "torch" not in brought


def test_an_older_torch_built_for_cuda_stays(tmp_path, wheel):
    # pip looks at an installed package's metadata alone
    environment = Environment(tmp_path)
    purelib = environment.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    metadata = Path(purelib) / "torch-2.4.0+cu121.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0+cu121\n")
    (metadata / "RECORD").write_text("")
    brought = environment.would_install(f"{wheel}[dgl,pyg]")
    assert "torch-geometric" in {name.replace("_", "-") for name in brought}
    assert "torch" not in brought


def test_the_index_shows_links_that_lead_somewhere(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    text = archive.read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in text and "Project-URL: Source, https:" in text
    assert "## What it gains" in text and not re.search(r"\]\((?!https?:|#)", text)


def test_the_fresh_environment_runs_the_wheel(installed):
    script = "import gnn_sparse_backend as gsb; print(gsb.__version__, gsb.__file__)"
    version, file = installed.run("python", "-c", script).split()
    assert version == gnn_sparse_backend.__version__
    assert Path(file).is_relative_to(installed.folder)
    assert installed.run("gsb", "--version").split()[-1] == version


def test_doctor_finds_nothing_broken(installed):
    report = json.loads(installed.run("gsb", "doctor", "--json"))
    assert report["healthy"], report
    states = {finding["name"]: finding["state"] for finding in report["findings"] if finding["group"] == "versions"}
    assert states["torch-geometric"] == "ok"
    assert states["dgl"] != "ok", "DGL was not asked for"


def test_spmm_and_its_gradient(installed):
    installed.run("python", SCRIPTS / "spmm_gradient.py")


def test_a_layer_of_pyg_runs_on_the_kernels(installed):
    installed.run("python", SCRIPTS / "pyg_layer.py")
