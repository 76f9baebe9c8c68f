"""Train a relational graph convolutional network to classify entities, with the backend on, off, or both ways side by
side.

    python -m models.rgcn --framework dgl
    python -m models.rgcn --framework pyg --dataset wordnet
    python -m models.rgcn --framework pyg --dataset debian --batch 1024 --fanout 10
    python -m models.rgcn --framework pyg --dataset debian --batch 1024 --evaluate full
    python -m models.rgcn --framework dgl --dataset my_graph.npz --backend on --hidden 64

generated needs no files. debian and wordnet are read from $GSB_DATA. aifb, mutag, bgs and am come through the
framework's own data set class, which downloads them when first used, and needs rdflib (PyG's pandas, too).

The data sets are in relational_data.py and rgcn_entities.py, the models in rgcn_dgl.py and rgcn_pyg.py, mini-batches in
rgcn_batches.py, the training loop in train.py.
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
        prog="rgcn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bases",
        type=int,
        default=30,
        help="how many matrices those of the relations are made of (default: %(default)s)",
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=0,
        metavar="NODES",
        help="train and evaluate on mini-batches of so many nodes (default: on the whole graph)",
    )
    parser.add_argument(
        "--fanout",
        type=int,
        default=10,
        help="neighbours drawn for each node of a batch, and of these (default: %(default)s)",
    )
    parser.add_argument(
        "--evaluate",
        choices=("batches", "full"),
        default="",
        help="accuracy and time of inference by sampled mini-batches, or on the whole graph (default: as the training)",
    )
    cli.add_options(
        parser,
        "generated|debian|wordnet|aifb|mutag|bgs|am|PATH.npz",
        "a .npz file needs src, dst, etype and label",
        nodes=20_000,
        edges=150_000,
        hidden=32,
        epochs=30,
    )
    return cli.script(parser, argv, "rgcn")


if __name__ == "__main__":
    sys.exit(main())
