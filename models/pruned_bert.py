"""Prune an encoder of BERT's size step by step while it learns, and run what is left on sparse layers.

    python -m models.pruned_bert --quick
    python -m models.pruned_bert --width 256 --layers 4
    python -m models.pruned_bert --width 256 --layers 4 --structure single --criterion movement
    python -m models.pruned_bert --width 256 --layers 4 --load out/pruned_bert.safetensors

Tokens state facts and ask for them, and the network has to remember what each operation makes of a value. It learns
this dense; then its weights are pruned, 32 x 32 blocks or single ones, by their size or by where they move; then it is
fine-tuned, with the masks of torch.nn.utils.prune and with the layers of gnn_sparse_backend.nn.sparsify, on the same
sequences. A network that is never pruned is trained as long. The pruned one is saved as a dense state (by safetensors
where it is installed), which --load starts from. Apart from that one layer of BERT's size is measured.

The defaults are those of BERT, which take hours on a laptop. What it is made of is in pruning/: task.py, network.py,
masks.py, train.py, measure.py, report.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from models import cli

QUICK = {
    "width": 64,
    "layers": 1,
    "length": 16,
    "steps": 150,
    "prune_steps": 80,
    "tune_steps": 50,
    "block": 16,
    "density": 0.2,
    "lr": 3e-3,
    "at_least": 0.0,  # so small ones do not pay
    "rounds": 3,
    "layer_tokens": 0,
}


def main(argv: list[str] | None = None) -> int:
    """Train, prune, print the tables, write JSON, PNG and the weights. Returns the exit status.

    0: all went well; 1: masked and sparse layers have not learned the same; 2: bad input.
    """
    args = arguments(argv)
    args.device = "cpu"
    if (lacking := cli.start(args, [])) is not None:
        print(f"error: {lacking}", file=sys.stderr)
        return 2
    from models.pruning import measure, report
    from models.pruning.train import ARMS, Config, train

    console = cli.console_of_width()
    args.heads = max(args.width // 64, 1) if args.heads is None else args.heads
    args.inner = 4 * args.width if args.inner is None else args.inner
    try:
        config = Config(**{name: getattr(args, name) for name in Config.__dataclass_fields__})
        pruned = None if args.load is None else report.load(args.load)
        with cli.progress_bar(console) as progress:
            task = progress.add_task("pruning", total=config.total(pruned is not None))

            def on_step(run):
                said = f"{ARMS[run.name]}, {run.densities[-1]:.1%} of the weights, loss {run.losses[-1]:.3f}"
                progress.update(task, advance=1, description=said)

            result = train(config, pruned, on_step)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    layer = measure.of_layer(config.layer_tokens, config.density, config.side, config.rounds)
    files = [*report.write(args.out, result, layer, config), report.save(args.out, result.pruned)]
    same = report.show(console, result, layer, config)
    console.print("Written: " + ", ".join(map(str, files)), soft_wrap=True)
    return 0 if same else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pruned_bert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = "(default: %(default)s)"
    parser.add_argument("--quick", action="store_true", help="a small network, in a few seconds")
    parser.add_argument("--width", type=int, default=768, help=f"of the network {own}")
    parser.add_argument("--heads", type=int, help="default: one for 64 of the width")
    parser.add_argument("--inner", type=int, help="width between the maps of a layer (default: 4 times the width)")
    parser.add_argument("--layers", type=int, default=12, help=own)
    parser.add_argument("--length", type=int, default=64, metavar="TOKENS", help=f"of a sequence {own}")
    parser.add_argument("--batch", type=int, default=16, metavar="SEQUENCES", help=f"of a step {own}")
    parser.add_argument("--steps", type=int, default=250, help=f"before pruning {own}")
    parser.add_argument("--prune-steps", type=int, default=250, help=f"while the density falls {own}")
    parser.add_argument("--tune-steps", type=int, default=100, help=f"after it {own}")
    parser.add_argument("--every", type=int, default=10, metavar="STEPS", help=f"from one pruning to the next {own}")
    parser.add_argument("--density", type=float, default=0.065, help=f"share of the weights that is left {own}")
    parser.add_argument("--structure", choices=("blocks", "single"), default="blocks", help=f"what is pruned {own}")
    parser.add_argument("--block", type=int, default=32, help=f"side of a block {own}")
    parser.add_argument("--criterion", choices=("magnitude", "movement"), default="magnitude", help=own)
    parser.add_argument(
        "--at-least",
        type=float,
        default=1.05,
        metavar="TIMES",
        help=f"faster, as predicted, is what becomes sparse {own}",
    )
    parser.add_argument("--lr", type=float, default=1e-3, help=own)
    parser.add_argument("--rounds", type=int, default=9, help=f"of the comparison of times {own}")
    parser.add_argument(
        "--layer-tokens", type=int, default=512, help=f"on which a layer of BERT's size is measured; 0: it is not {own}"
    )
    parser.add_argument("--load", type=Path, metavar="FILE", help="start from this pruned network, with the same sizes")
    cli.add_place_options(parser, "JSON, PNG and weights")
    if parser.parse_args(argv).quick:  # what is given still counts
        parser.set_defaults(**QUICK)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
