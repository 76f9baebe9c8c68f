"""Functions in LLVM's language, compiled here for Linux on Arm and run under qemu-user, which Debian has a package of.

They go into a program of a few kilobytes that needs no library: it calls one of them on bytes that it contains, and
writes what came of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from gnn_sparse_backend.compiler.codegen import Target
from gnn_sparse_backend.compiler.codegen.cpu.launcher import NativeText, _module_of
from gnn_sparse_backend.compiler.codegen.linker import find_cross_linker
from tests.platforms.targets import ARM

ROOT = Path(os.environ.get("AARCH64_ROOT", "out/aarch64"))
"""Where ``make test-aarch64`` has set up its own."""
_PLACES = (os.defpath, str(ROOT / "host/usr/bin"))
_SYSTEM_CALL = 'call i64 asm sideeffect "svc #0", "={x0},{x8},{x0},{x1},{x2},~{memory}"'
_WRITE, _EXIT, _STANDARD_OUTPUT = 64, 93, 1
_MAIN = """
@given = internal global [{given} x i8] c"{bytes}", align 64
@made = internal global [{made} x i8] zeroinitializer, align 64

define void @_start() {{
  call void @work(ptr @given, ptr @made)
  {call}(i64 {write}, i64 {to}, ptr @made, i64 {made})
  {call}(i64 {exit}, i64 0, ptr @made, i64 0)
  unreachable
}}
"""


def emulator() -> str | None:
    """The program that runs others of Arm; None without one."""
    paths = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
    return shutil.which("qemu-aarch64-static", path=paths) or shutil.which("qemu-aarch64", path=paths)


def linker() -> tuple[str, ...] | None:
    """The command of a linker for Arm; None without one."""
    found = find_cross_linker(ARM["neoverse-n1"])
    if found is None and (own := ROOT / "bin/ld").exists():
        return (str(own.absolute()),)
    return found and tuple(word for word in found if word not in ("-shared", "--eh-frame-hdr", "-Bsymbolic"))


def missing() -> str:
    """What this machine lacks, in words; nothing if nothing."""
    lacking = {"qemu-user-static": emulator(), "lld or PyPI's ziglang": linker()}
    return " and ".join(name for name, found in lacking.items() if not found)


def run(text: str, given: bytes, made: int, target: Target, folder: Path, sve_bytes: int = 32) -> bytes:
    """The ``made`` bytes that ``work(given, made)`` of an LLVM text writes on a processor that has all of Arm's
    instructions, and scalable vectors of this length.
    """
    escaped = "".join(f"\\{byte:02X}" for byte in given)
    calls = {"call": _SYSTEM_CALL, "write": _WRITE, "to": _STANDARD_OUTPUT, "exit": _EXIT}
    main = _MAIN.format(given=len(given), bytes=escaped, made=made, **calls)
    object_file, program = folder / "program.o", folder / "program"
    _module_of(NativeText("program", text + main), target).write_to_file(str(object_file))
    subprocess.run([*linker(), str(object_file), "-o", str(program)], check=True)
    processor = f"max,sve-default-vector-length={sve_bytes}"
    return subprocess.run([emulator(), "-cpu", processor, program], check=True, capture_output=True, timeout=60).stdout
