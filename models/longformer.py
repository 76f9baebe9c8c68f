"""Train an encoder in the style of Longformer on a task that short windows cannot solve.

    python -m models.longformer --quick
    python -m models.longformer --length 4096 --window 64
    python -m models.longformer --arms global window dense

One token of each sequence is marked, anywhere among 4,096; every token has to say its symbol. With windows of attention
alone, word of it reaches as far as the layers have windows. With one global token it reaches everybody in two layers.
Sequences grow during the training. "dense" trains the same network with PyTorch's attention, which computes every pair.

What it is made of is in sequences/: task.py, network.py, train.py, report.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from models import cli

ARMS = ("global", "window", "dense")
QUICK = {"length": 256, "window": 8, "width": 32, "heads": 2, "batch": 8}


def main(argv: list[str] | None = None) -> int:
    """Train, print the table, write JSON and PNG. Returns the exit status.

    0: all went well; 1: a network that sees everything has not learned the task; 2: bad input.
    """
    args = arguments(argv)
    args.device = "cpu"
    if (lacking := cli.start(args, [])) is not None:
        print(f"error: {lacking}", file=sys.stderr)
        return 2
    from models.sequences import report
    from models.sequences.train import Config, train

    console = cli.console_of_width()
    try:
        config = Config(**{name: getattr(args, name) for name in Config.__dataclass_fields__})
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    runs = []
    with cli.progress_bar(console) as progress:
        for name in args.arms:
            task = progress.add_task(name, total=config.steps * len(config.lengths))

            def on_step(run, task=task):
                said = f"{run.name}, {run.lengths[-1]} tokens, loss {run.losses[-1]:.3f}"
                progress.update(task, advance=1, description=said)

            runs.append(train(name, config, on_step))
    files = report.write(args.out, runs, config)
    learned = report.show(console, runs, config)
    console.print("Written: " + ", ".join(map(str, files)), soft_wrap=True)
    return 0 if learned else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="longformer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = "(default: %(default)s)"
    parser.add_argument("--quick", action="store_true", help="short sequences and a small network, in a few seconds")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["global", "window"], help=f"what to train {own}")
    parser.add_argument("--length", type=int, default=4096, metavar="TOKENS", help=f"of a sequence {own}")
    parser.add_argument("--start", type=int, default=16, metavar="TOKENS", help=f"of the first sequences {own}")
    parser.add_argument("--window", type=int, default=64, metavar="TOKENS", help=f"attended on either side {own}")
    parser.add_argument("--width", type=int, default=64, help=f"of the network {own}")
    parser.add_argument("--heads", type=int, default=4, help=own)
    parser.add_argument("--layers", type=int, default=2, help=own)
    parser.add_argument("--batch", type=int, default=4, metavar="SEQUENCES", help=f"of full length {own}")
    parser.add_argument("--steps", type=int, default=40, help=f"of each length, which doubles up to --length {own}")
    parser.add_argument("--lr", type=float, default=3e-3, help=own)
    cli.add_place_options(parser)
    if parser.parse_args(argv).quick:  # what is given still counts
        parser.set_defaults(**QUICK)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
