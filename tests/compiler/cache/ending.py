"""A process that ends, or forks, while a kernel is compiled for it that takes minutes:
``python -m tests.compiler.cache.ending HOW LIBRARY FOLDER``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from gnn_sparse_backend.compiler.cache import DiskCache, KernelStore, background
from gnn_sparse_backend.compiler.cache.background import BACKGROUND, PendingKernel, for_framework
from tests.compiler.cache.helpers import CopyBuild, assert_scales, get, leave_number, load


class Slow(CopyBuild):
    def __init__(self, library: str, folder: Path):
        super().__init__(library)
        self.folder = folder

    def __call__(self, folder):
        leave_number(self.folder / "builder")
        time.sleep(600)


def main(how: str, library: str, folder: str) -> None:
    background.in_background = lambda: True
    store = KernelStore(DiskCache(Path(folder) / "cache"), load)
    try:
        with for_framework():
            get(store, Slow(library, Path(folder)))
    except PendingKernel as pending:
        BACKGROUND.start(pending.key, pending.make)
    while not (Path(folder) / "builder").exists():
        time.sleep(0.01)
    if how == "is forked" and (child := os.fork()) == 0:
        with for_framework():  # a child waits, and for nobody who did not come along
            assert_scales(get(store, CopyBuild(library), "another program"))
        os._exit(0)
    elif how == "is forked":
        assert os.waitpid(child, 0)[1] == 0
    print("done")


if __name__ == "__main__":
    from tests.compiler.cache import ending  # where another process finds what builds

    ending.main(*sys.argv[1:])
