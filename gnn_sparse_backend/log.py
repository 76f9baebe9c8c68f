"""Logging: one tree of loggers, ``gnn_sparse_backend.*``, named after the modules.

    gnn_sparse_backend.compiler.cache.store          kernels compiled and loaded, in milliseconds
    gnn_sparse_backend.ops.core.plans                plans chosen
    gnn_sparse_backend.integrations.core.counters    calls that a framework ran itself, why, and what to do about it

Nothing is shown by default. ``GSB_LOG=info`` or ``debug`` shows records on the error stream from the first import on;
whoever configures :mod:`logging` gets the same records through the usual propagation. At ``info`` a plan or a fallback
is told when it is first met, at ``debug`` every time.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Hashable

from . import config

ROOT = logging.getLogger(__package__)
# Distinct plans and fallbacks that are remembered as told; beyond these they are told again.
MOST_TOLD = 4096

_lock = threading.Lock()
_told: set[Hashable] = set()


def install() -> None:
    """Keep Python from showing warnings by itself, and show records as ``GSB_LOG`` says: once, when the package is
    imported.
    """
    ROOT.addHandler(logging.NullHandler())
    try:
        level = config.LOG.get()
    except ValueError as error:  # which would keep `gsb doctor` from telling it
        warnings.warn(f"nothing is logged: {error}", config.UnknownVariableWarning, stacklevel=2)
        return
    if level is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        ROOT.addHandler(handler)
        ROOT.setLevel(level.upper())


def first_at_info(logger: logging.Logger, key: Hashable, message: str, *arguments: object) -> None:
    """Log at ``info`` what has this ``key`` when it is first met in this process, and at ``debug`` from then on.

    The key is remembered only where somebody listens, so that a handler which is added later misses nothing.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    with _lock:
        first = (logger.name, key) not in _told
        if first:
            if len(_told) >= MOST_TOLD:
                _told.clear()
            _told.add((logger.name, key))
    logger.log(logging.INFO if first else logging.DEBUG, message, *arguments)
