"""Train a relational graph convolutional network to classify entities, with the backend on, off, or both ways side by side.

    python -m models.rgcn --framework dgl
    python -m models.rgcn --framework pyg --dataset wordnet
    python -m models.rgcn --framework dgl --dataset my_graph.npz --backend on --hidden 64

The data sets are in relational_data.py, the models in rgcn_dgl.py and rgcn_pyg.py, the training loop in train.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from models import cli


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="rgcn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", type=int, default=30, help="of the matrices of the relations (default: %(default)s)")
    cli.add_options(parser, "generated|debian|wordnet|PATH.npz",
                    "debian and wordnet are read from $GSB_DATA; a .npz file needs src, dst, etype and label")
    parser.set_defaults(nodes=20_000, edges=150_000, hidden=32)
    return cli.script(parser, argv, "rgcn")


if __name__ == "__main__":
    sys.exit(main())
