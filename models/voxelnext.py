"""Train VoxelNeXt, a detector that is written with spconv, on a CPU, where spconv itself has no gradients.

    python -m models.voxelnext --quick
    python -m models.voxelnext --scans 16 --steps 200 --threads 8

The network has the public configuration for KITTI, and looks at generated scenes: streets as a rotating scanner with 64
beams sees them. At each cell of a map, 0.4 metres wide, it tells whether there is a vehicle or a person, and how high
the cell is. A scan of KITTI in $GSB_DATA, which has no labels, is trained on beside them for its heights.

What it is made of is in detection/: network.py, examples.py, train.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

if not __package__:  # run as a file: make the `models` package importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from models import cli

QUICK = {"scans": 6, "azimuths": 300, "beams": 32, "voxel": 0.2, "width": 0.25, "steps": 60}


def main(argv: list[str] | None = None) -> int:
    """Train, print the table, write JSON. Returns the exit status.

    0: all went well; 1: a loss has not fallen; 2: bad input.
    """
    args = arguments(argv)
    args.device = "cpu"
    if (lacking := cli.start(args, [])) is not None:
        print(f"error: {lacking}", file=sys.stderr)
        return 2
    try:
        import spconv.pytorch  # noqa: F401
    except ImportError:
        print("error: spconv is not installed; try: pip install 'gnn-sparse-backend[spconv]'", file=sys.stderr)
        return 2
    from models.detection.examples import Example, Grid
    from models.detection.train import Config, precision, train
    from models.point_clouds import data, kitti

    console = cli.console_of_width()
    try:
        config = Config(args.width, args.steps, args.lr, args.seed)
        if not args.voxel > 0:
            raise ValueError(f"voxel must be positive, got {args.voxel}")
        grid = Grid(voxel=(args.voxel, args.voxel, 2 * args.voxel))
        scans = data.load("generated", args.scans, 1, args.seed, args.azimuths, args.beams)
        generated = [Example.of([scan()], grid) for scan in scans.train]
        validation = Example.of([scans.val[0]()], grid)
        scan = kitti.sample()
        with cli.progress_bar(console) as progress:
            task = progress.add_task("VoxelNeXt", total=(1 if scan is None else 2) * config.steps)
            tell = lambda run: progress.update(task, advance=1, description=f"VoxelNeXt, loss {run.losses[-1]:.3f}")
            model = config.detector()
            runs = {"generated scenes": train(model, generated, config, tell)}
            if scan is not None:
                runs["the scan of KITTI"] = train(config.detector(), [Example.of([scan], grid)], config, tell)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = precision(model, validation)
    console.print(table(runs, config, grid))
    for name, (share, by_chance) in found.items():
        console.print(f"{name}: {share:.0%} of the cells that it is surest of hold one, {by_chance:.1%} of all cells")
    args.out.mkdir(parents=True, exist_ok=True)
    record = {"config": asdict(config), "grid": asdict(grid), "precision": found}
    path = args.out / "voxelnext.json"
    path.write_text(json.dumps(record | {"runs": {name: asdict(run) for name, run in runs.items()}}, indent=1) + "\n")
    console.print(f"Written: {path}", soft_wrap=True)
    return 0 if all(run.losses[-1] < run.losses[0] for run in runs.values()) else 1


def table(runs: dict, config, grid):
    """The first and the last losses of every run."""
    from rich.table import Table

    made = Table(
        title=f"VoxelNeXt, width {config.width:g}, voxels of {grid.voxel[0]:g} m, {config.steps} steps, "
        f"seed {config.seed}",
        title_justify="left",
    )
    made.add_column("trained on")
    for column in ("first loss", "last loss", "of things", "of heights"):
        made.add_column(column, justify="right")
    for name, run in runs.items():
        things = "" if run.things[-1] is None else f"{run.things[-1]:.4f}"
        made.add_row(name, f"{run.losses[0]:.4f}", f"{run.losses[-1]:.4f}", things, f"{run.heights[-1]:.4f}")
    return made


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="voxelnext", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = "(default: %(default)s)"
    parser.add_argument("--quick", action="store_true", help="small scenes and a small network, in about a minute")
    parser.add_argument("--scans", type=int, default=8, help=f"generated scenes to train on {own}")
    parser.add_argument("--azimuths", type=int, default=1800, help=f"steps of a turn of generated scans {own}")
    parser.add_argument("--beams", type=int, default=64, help=f"of generated scans {own}")
    parser.add_argument("--voxel", type=float, default=0.05, metavar="METRES", help=f"its width {own}")
    parser.add_argument("--width", type=float, default=1.0, help=f"of all channels, times those of the paper {own}")
    parser.add_argument("--steps", type=int, default=80, help=f"of the optimiser {own}")
    parser.add_argument("--lr", type=float, default=3e-3, help=own)
    cli.add_place_options(parser, files="JSON")
    if parser.parse_args(argv).quick:  # what is given still counts
        parser.set_defaults(**QUICK)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
