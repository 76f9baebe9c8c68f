"""A Debian for Arm in a folder, and programs of it on this machine under qemu-user: ``make test-aarch64``.

    python -m tests.platforms.arm_root out/aarch64              # sets it up, once
    out/aarch64/python -m pytest tests/ops/grouped              # runs in it
    python -m tests.platforms.arm_root --emulator out/aarch64   # the emulator and a linker alone, for test_emulated

Packages come from Debian and PyPI alone, and nothing is installed on this machine: its own apt reads the lists of
another architecture into the folder, and packages are unpacked there. Kernels are linked by the cross linker among
them, which runs on this machine's processor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PYTHON = "3.11"
"""Debian 12's."""
GUEST = ("python3", "libgomp1", "libstdc++6", "zlib1g")
HOST = ("qemu-user-static", "binutils-aarch64-linux-gnu")
# The last PyTorch whose wheel for Arm is built without CUDA.
WHEELS = (
    "torch==2.9.1",
    "numpy<2.4",
    "scipy",
    "apache-tvm==0.27.0.post1",
    "apache-tvm-ffi==0.1.14.post1",
    "torch-geometric>=2.7,<2.9",
    "filelock",
    "platformdirs",
    "rich",
    "psutil",
    "ml_dtypes",
    "pytest",
    "pytest-xdist",
    "pytest-regressions",
    "hypothesis",
    "sybil",
    "safetensors",
    "packaging",
)
PLATFORMS = tuple(f"manylinux_2_{minor}_aarch64" for minor in (35, 34, 31, 28, 27, 26, 24, 17)) + (
    "manylinux2014_aarch64",
)
CPU = "max,pauth-impdef=on,sve-default-vector-length=32"
"""All that qemu knows of Arm, with scalable vectors of 256 bits, as a Neoverse V1 has; it checks pointers quickly."""


def set_up(root: Path) -> Path:
    """Make the folder unless it is complete, and return the program that runs its Python here."""
    root = root.absolute()
    run = root / "python"
    if not run.exists():
        set_up_emulator(root)
        _unpack_packages(root, "arm64", GUEST, root / "debian")
        _unpack_wheels(root / "site")
        _compile(root)
        _write_program(root, run)
    return run


def set_up_emulator(root: Path) -> Path:
    """Put the emulator and a linker for Arm into the folder unless they are there, and return the linker."""
    root = root.absolute()
    linker = root / "bin/ld"
    if not linker.exists():
        host = root / "host"
        _unpack_packages(root, "amd64", HOST, host)
        for each in (host / "usr/bin").glob("qemu-*"):
            if each != qemu(root):
                each.unlink()  # 300 MB of other processors
        linker.parent.mkdir(exist_ok=True)
        libraries, program = host / "usr/lib/x86_64-linux-gnu", host / "usr/bin/aarch64-linux-gnu-ld"
        _script(linker, f'exec env LD_LIBRARY_PATH={libraries} {program} "$@"')
    return linker


def qemu(root: Path) -> Path:
    """The emulator."""
    return root / "host/usr/bin/qemu-aarch64-static"


def _unpack_packages(root: Path, architecture: str, names: Sequence[str], folder: Path) -> None:
    for package in _downloaded(root / f"apt-{architecture}", architecture, names):
        _run("dpkg-deb", "-x", package, folder)


def _downloaded(folder: Path, architecture: str, names: Sequence[str]) -> list[Path]:
    """Packages of Debian with what they depend on; on this machine's own architecture without what it has."""
    for below in ("lists/partial", "archives/partial", "log"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    status = folder / "status"
    if architecture == "amd64":
        shutil.copy("/var/lib/dpkg/status", status)
    else:
        status.touch()
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": status,
        "Dir::Cache::archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Dir::Log": folder / "log",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run(*apt, "update")
    _run(*apt, "install", "--download-only", "--yes", "--no-install-recommends", *names)
    return sorted((folder / "archives").glob("*.deb"))


def _unpack_wheels(folder: Path) -> None:
    """Wheels for Arm and what they depend on; what PyTorch wants beside are packages for GPUs."""
    platforms = [f"--platform={each}" for each in PLATFORMS]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    pip += ["--implementation=cp", f"--python-version={PYTHON}", *platforms, f"--target={folder}", "--no-compile"]
    torch, others = WHEELS[0], WHEELS[1:]
    _run(*pip, *others, "typing_extensions", "sympy>=1.13.3", "networkx", "jinja2", "fsspec")
    _run(*pip, "--no-deps", torch)


def _compile(root: Path) -> None:
    """Modules as bytecode, which is the same on all processors, where this Python writes that of the other: to compile
    PyTorch's under the emulator would take most of the minutes in which it is imported.
    """
    if ".".join(map(str, sys.version_info[:2])) == PYTHON:
        words = {"PYTHONPYCACHEPREFIX": str(root / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
        folders = root / "site", root / f"debian/usr/lib/python{PYTHON}"
        command = [sys.executable, "-m", "compileall", "-qq", "-j0", *map(str, folders)]
        subprocess.run(command, env=os.environ | words, check=False)  # some files are no Python


def _write_program(root: Path, run: Path) -> None:
    """``python`` runs Arm's Python, whose kernels ``bin/ld`` links: the host runs both by itself."""
    debian = root / "debian"
    settings = {
        "PATH": f"{root / 'bin'}:/usr/bin:/bin",
        "PYTHONHOME": str(debian / "usr"),
        "PYTHONPATH": f"{Path.cwd()}:{root / 'site'}",
        "PYTHONPYCACHEPREFIX": str(root / "compiled"),
        "PYTHONDONTWRITEBYTECODE": "",  # whatever it is here
        "GSB_CACHE_DIR": str(root / "kernels"),
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "passive",  # a thread that spins would be emulated, too
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",  # nothing compiles C++ there
    }
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    emulator = f'{qemu(root)} -cpu {CPU} -L {debian} -0 {run} {debian}/usr/bin/python{PYTHON} "$@"'
    _script(run, f"exec env {words} {emulator}")


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _run(*command: str | os.PathLike[str]) -> None:
    subprocess.run([os.fspath(word) for word in command], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    *options, folder = sys.argv[1:]
    print((set_up_emulator if options == ["--emulator"] else set_up)(Path(folder)))
