"""The subcommands of ``gsb`` that read graphs and caches. Each module has ``add(commands)``, which describes a command
to argparse, and ``run(options)``, which gives the exit code."""

from __future__ import annotations

from . import cache, explain, tune

COMMANDS = (tune, explain, cache)
