"""Train MinkUNet to segment point clouds, on our convolutions, on plain PyTorch's, or both ways side by side.

    python -m models.minkunet --quick
    python -m models.minkunet --depth 34 --backend on --precompile 60s
    python -m models.minkunet --data /data/semantickitti --scans 2000 --val-scans 200 --batch 2 --device cuda
    python -m models.minkunet --checkpoints out/minkunet --resume

generated scenes need no files: streets as a rotating scanner with 64 beams sees them. --data names a folder of
SemanticKITTI, with velodyne/*.bin and labels/*.label in it or below. Beside the networks a linear model of single
points is trained as long, which shows what the neighbourhood is worth. A scan of KITTI in $GSB_DATA is segmented at the
end.

What it is made of is in point_clouds/: scenes.py and kitti.py, network.py, train.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from models import cli

QUICK = {
    "scans": 6,
    "val_scans": 2,
    "azimuths": 300,
    "beams": 32,
    "voxel": 0.3,
    "width": 0.25,
    "epochs": 10,
    "lr": 4e-3,
}


def main(argv: list[str] | None = None) -> int:
    """Train, print the tables, write JSON and pictures. Returns the exit status.

    0: all went well; 1: losses on both convolutions differ beyond rounding; 2: bad input.
    """
    args = arguments(argv)
    if (lacking := cli.start(args, [])) is not None:
        print(f"error: {lacking}", file=sys.stderr)
        return 2
    from models.point_clouds import data, kitti, report
    from models.point_clouds.train import LINEAR, Config, train

    console = cli.console_of_width()
    names = (*cli.BACKENDS[args.backend], LINEAR)
    try:
        config = Config(
            args.depth,
            args.width,
            args.voxel,
            args.epochs,
            args.batch,
            args.lr,
            args.augment,
            args.seed,
            args.precompile,
            args.device,
        )
        scans = data.load(args.data, args.scans, args.val_scans, args.seed, args.azimuths, args.beams)
        with cli.progress_bar(console) as progress:
            task = progress.add_task("MinkUNet", total=config.epochs * len(names))

            def on_epoch(run):
                said = f"{report.LABELS[run.name]}, loss {run.last_loss():.3f}"
                progress.update(task, advance=1, description=said)

            trainees = train(names, scans, config, on_epoch, args.checkpoints, args.resume)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    shown = [scans.val[0](), *filter(None, [kitti.sample()])]
    files = report.write(args.out, scans, trainees, config, shown)
    return 0 if report.show(console, scans, [trainee.run for trainee in trainees], config, files) else 1


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="minkunet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = "(default: %(default)s)"
    parser.add_argument("--quick", action="store_true", help="small scenes and a small network, in about a minute")
    parser.add_argument("--data", default="generated", metavar="generated|FOLDER", help=f"scans {own}")
    parser.add_argument("--scans", type=int, default=24, help=f"to train on {own}")
    parser.add_argument("--val-scans", type=int, default=6, help=f"to evaluate on {own}")
    parser.add_argument("--azimuths", type=int, default=1800, help=f"steps of a turn of generated scans {own}")
    parser.add_argument("--beams", type=int, default=64, help=f"of generated scans {own}")
    parser.add_argument("--depth", type=int, default=18, help=f"18 or 34 {own}")
    parser.add_argument("--width", type=float, default=1.0, help=f"of all channels, times those of the paper {own}")
    parser.add_argument("--voxel", type=float, default=0.1, metavar="METRES", help=own)
    parser.add_argument("--batch", type=int, default=1, metavar="SCANS", help=f"scans of a step {own}")
    parser.add_argument("--epochs", type=int, default=8, help=own)
    parser.add_argument("--lr", type=float, default=2e-3, help=own)
    parser.add_argument(
        "--no-augment", dest="augment", action="store_false", help="do not turn, mirror and scale scans anew each time"
    )
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="save all states there after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from what --checkpoints has")
    cli.add_run_options(parser)
    if parser.parse_args(argv).quick:  # what is given still counts
        parser.set_defaults(**QUICK)
    args = parser.parse_args(argv)
    if args.resume and args.checkpoints is None:
        parser.error("--resume needs --checkpoints FOLDER, to go on from")
    return args


if __name__ == "__main__":
    sys.exit(main())
