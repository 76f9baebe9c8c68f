"""GraphSAGE under DGL and under PyG, each with and without the backend, in one table.

Run it so:

    python -m models.demo            the graph of 100,000 nodes and 1,000,000 edges
    python -m models.demo --quick    a tenth of it and fewer epochs
"""

from __future__ import annotations

import argparse
import sys

from gnn_sparse_backend.extras import how_to_install
from models import cli

QUICK = {"nodes": 10_000, "edges": 100_000, "epochs": 12}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_options(parser)
    parser.add_argument("--quick", action="store_true", help="a small graph and few epochs, to see that all is well")
    if "--quick" in (sys.argv[1:] if argv is None else argv):
        parser.set_defaults(**QUICK)
    args = parser.parse_args(argv)

    frameworks = [framework for framework in cli.MODULES if cli.installed(framework)]
    for framework in cli.MODULES:
        if framework not in frameworks:
            print(
                f"{cli.MODULES[framework]} is not installed here, and the demo runs without it: "
                + how_to_install(framework)
            )
    if not frameworks:
        print("error: neither DGL nor PyG is installed; `make demo` installs both", file=sys.stderr)
        return 2
    return cli.main(args, frameworks, "demo")


if __name__ == "__main__":
    sys.exit(main())
