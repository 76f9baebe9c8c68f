"""NVIDIA's driver and runtime, acted: GPUs that load any code, and count what is launched on them without running it,
what stream the last launch was on, and all calls that hand out or free memory, copy, or wait.

With them TVM's CUDA runtime loads on a machine without a driver, so that kernels are kept as machine code. They are
for a process of its own, whose dynamic linker finds them in `environment`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import tvm

from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, RUNTIME, find_library

TVM_RUNTIME = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
ACTED = """
#include <stdlib.h>
#include <string.h>
int fake_current = 0, fake_launches[8] = {0}, fake_others = 0;
void* fake_stream = 0;
typedef struct { unsigned grid[3], block[3], shared; void* stream; } Configuration;  /* CUlaunchConfig's beginning */
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return GPUS ? 0 : 100; }
int cuDeviceGetCount(int* count) { *count = GPUS; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDeviceGetName(char* name, int size, int device) { strncpy(name, "Acted GPU", size); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute == 75 ? 8 : attribute == 76 ? 6 : 0;
    return 0;
}
int cuGetErrorString(int code, const char** text) { *text = "no CUDA-capable device is detected"; return 0; }
int cuGetExportTable(const void** table, const void* id) { return 1; }  /* NVRTC asks */
int cudaRuntimeGetVersion(int* version) { *version = 13000; return 0; }
int cudaGetDevice(int* device) { *device = fake_current; return 0; }
int cudaSetDevice(int device) { fake_current = device; return 0; }
int cudaGetDeviceCount(int* count) { *count = GPUS; return GPUS ? 0 : 100; }
int cudaDeviceGetAttribute(int* value, int attribute, int device) { *value = 1; return 0; }
int cudaMalloc(void** pointer, size_t size) {
    fake_others++;
    *pointer = aligned_alloc(256, (size + 255) / 256 * 256);
    return 0;
}
int cudaFree(void* pointer) { fake_others++; free(pointer); return 0; }
const char* cudaGetErrorString(int code) { return "acted"; }
const char* cudaGetErrorName(int code) { return "acted"; }
"""
COUNTED = """
int cuModuleLoadData(void** module, const void* code) { *module = module; return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) { *function = function; return 0; }
int cuLaunchKernelEx(const Configuration* how) { fake_launches[fake_current]++; fake_stream = how->stream; return 0; }
"""
"""What becomes of modules and launches: nothing."""


class CannotAct(RuntimeError):
    """Why there is no acted driver here."""


def make(folder: Path, version: int = 13000, gpus: int = 0, more: str = COUNTED) -> Path:
    """Make the libraries of a driver for a version of CUDA, with ``gpus`` GPUs, in a folder; return the folder.

    more: C of what becomes of modules and launches. Raises CannotAct where they cannot be made or real ones are found.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler or not shutil.which("nm"):
        raise CannotAct("an acted driver wants a C compiler and nm")
    if find_library(DRIVER) is not None:
        raise CannotAct("this machine has a driver")
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", TVM_RUNTIME], capture_output=True, text=True, check=True
    ).stdout
    wanted = set(re.findall(r"\b(cu(?:da)?[A-Z]\w*)", symbols))
    acted = set(re.findall(r"\b(cu\w+)\(", ACTED + more))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "acted.c").write_text(
        ACTED + more + "".join(f"int {name}(void) {{ fake_others++; return 0; }}\n" for name in sorted(wanted - acted))
    )
    (folder / "versions").write_text(f"{RUNTIME} {{ global: cuda*; }};\n")
    defines = [f"-DVERSION={version}", f"-DGPUS={gpus}", "-w", "-shared", "-fPIC"]
    # one library under both names, so that there is one state: what asks for the runtime finds the driver's
    versioned = f"-Wl,--version-script={folder / 'versions'}"
    subprocess.run(
        [compiler, *defines, f"-Wl,-soname,{RUNTIME}", versioned, str(folder / "acted.c"), "-o", str(folder / RUNTIME)],
        check=True,
    )
    (folder / DRIVER).symlink_to(RUNTIME)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a process that finds the libraries in a folder, and keeps its kernels there."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "GSB_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }
