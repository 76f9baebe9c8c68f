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
    parser = argparse.ArgumentParser(
        prog="graphsage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_options(parser)
    return cli.script(parser, argv)


if __name__ == "__main__":
    sys.exit(main())
