"""Train GraphSAGE on one graph, with the backend on, off, or both ways side by side.

    python -m models.graphsage --framework pyg
    python -m models.graphsage --framework dgl --dataset cora
    python -m models.graphsage --framework dgl --dataset my_graph.npz --backend on --hidden 256

The data sets are in data.py, the models in sage_dgl.py and sage_pyg.py, the training loop in train.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from models import cli


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="graphsage", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=cli.MODULES, required=True)
    cli.add_options(parser)
    args = parser.parse_args(argv)
    if not cli.installed(args.framework):
        print(f"error: {cli.MODULES[args.framework]} is not installed; try: "
              f"pip install 'gnn-sparse-backend[{args.framework}]'", file=sys.stderr)
        return 2
    return cli.main(args, [args.framework], f"graphsage-{args.framework}")


if __name__ == "__main__":
    sys.exit(main())
