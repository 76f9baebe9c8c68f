"""Sparse convolutions, those of MinkUNet on scans of streets and rooms: ``python -m benchmarks.sparse_conv``.

Every distinct layer of the network on each cloud, with its map known: forward in float32 and bfloat16, and forward with
the gradients to features and weights from a random cotangent; beside plain PyTorch on the same maps, and spconv where
it is installed (forward in float32 alone). Answers are compared before anything is timed; peak memory is of a fresh
process for each. Then what building each map costs, whole forward passes and training steps, maps included, and the
first step of a process whose kernels must be compiled.

``--device cuda`` measures the layers on a GPU, in any precision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.layers.sparse_conv import clouds, contenders, gpu, maps, network, spconv
from benchmarks.layers.sparse_conv import memory as layer_memory
from benchmarks.layers.sparse_conv import report as tables
from benchmarks.layers.sparse_conv.contenders import CONTENDERS, MODES, OURS
from benchmarks.layers.sparse_conv.work import convolution_work
from benchmarks.support import cells, cli, machine, merging, report, roofline, summary
from benchmarks.support.budget import Budget, weight
from benchmarks.support.gpu import device as gpu_options
from benchmarks.support.reasons import Evidence
from benchmarks.support.timing import Rules, Timing, interleaved
from models.point_clouds.data import Cloud
from models.point_clouds.layers import Layer

# of a cloud's time; the layers have the rest
MAPS_SHARE, NETWORK_SHARE = 0.15, 0.25
# seconds, and times what the fastest took: beyond both a first call is all that is timed
LONG_CALL, HOPELESS = 0.5, 10.0
RULES = {"long_rounds": 2, "hopeless": 4.0}


def measure_cell(
    place: clouds.Place,
    layer: Layer,
    mode: str,
    names: Sequence[str],
    peaks: Mapping[str, dict],
    limits: Mapping[str, roofline.Roofline],
    budget: float,
) -> dict:
    """A layer in a mode, as plain values. peaks: memory by contender. ``flawed``: contenders whose answer was wrong,
    and whose time is kept, for a right answer would have cost them no less.
    """
    unable, wrong, flawed, calls, first = {}, {}, {}, {}, {}
    expected = contenders.expected_of(layer, mode)
    for name in names:
        if reason := contenders.refusal(name, mode):
            unable[name] = reason
            continue
        try:
            call, in_our_order = contenders.call_of(name, layer, mode)
            begin = time.perf_counter()
            answer = call()
            first[name] = time.perf_counter() - begin
            found = contenders.mismatch(in_our_order(answer), expected)
        except Exception as error:  # one contender's failure is a result, and must not cost the others theirs
            wrong[name] = f"{type(error).__name__}: {error}"
            continue
        if found is not None and name != spconv.NAME:
            wrong[name] = found
        else:
            calls[name] = call
            flawed |= {} if found is None else {name: found}
    timings = timed(calls, first, budget)
    dtype, backward = MODES[mode]
    rated = cells.rate(
        f"{place}, {layer}, {mode}",
        timings,
        (OURS,),
        limits[mode],
        convolution_work(layer, backward=backward, itemsize=dtype.itemsize),
        wrong=wrong,
        evidence=Evidence(),
    )
    known = {name: entry["step"] for name, entry in peaks.items() if "step" in entry}
    return {
        "graph": str(place),
        "op": str(layer),
        "mode": mode,
        "kind": layer.kind,
        "count": layer.count,
        "pairs": layer.kernel_map.num_pairs,
        **rated,
        "first_call": first,
        "unable": unable,
        "flawed": flawed,
        "memory": dict(peaks),
        "memory_ratio": summary.speedup(known, (OURS,)),
    }


def timed(calls: Mapping[str, Callable], first: Mapping[str, float], budget: float) -> dict[str, dict]:
    """``{contender: timing}``; of what took long at its first call, and is out of the question, that call is all. Our
    first call may compile, and says nothing of the others.
    """
    if not calls:
        return {}
    longest = max(LONG_CALL, HOPELESS * min(first[name] for name in calls))
    fit = {name: call for name, call in calls.items() if name == OURS or first[name] < longest}
    found = interleaved(fit, Rules(budget_s=budget, **RULES))
    return {name: found.get(name, Timing.of([first[name]])).to_dict() for name in calls}


def measure_place(
    place: clouds.Place,
    cloud: Cloud,
    options: argparse.Namespace,
    limits: Mapping[str, roofline.Roofline],
    shares: Budget,
    begin: Callable[[str], None],
) -> Iterator[tuple[str, dict]]:
    """(``cells``, ``maps`` or ``networks``, an entry) of a cloud, one after the other."""
    found = clouds.layers(cloud, options.depth)
    keys = [(str(layer), mode) for layer in found for mode in options.modes]
    start = time.perf_counter()
    begin(f"{place}, memory")
    if "memory" in options.parts:
        peaks = layer_memory.measure(options.contenders, place, keys, options.modes, options.threads, options.depth)
    else:
        peaks = {key: {} for key in keys}
    shares.pause(time.perf_counter() - start)
    seconds = shares.take(str(place))
    begin(f"{place}, layers")
    if "layers" in options.parts:
        share = (1 - MAPS_SHARE - NETWORK_SHARE) * seconds / max(1, len(keys))
        for layer in found:
            for mode in options.modes:
                here = peaks[str(layer), mode]
                yield "cells", measure_cell(place, layer, mode, options.contenders, here, limits, share)
    begin(f"{place}, maps")
    if "maps" in options.parts:
        built = maps.maps_of(found)
        for layer in built:
            yield "maps", maps.measure(str(place), layer, MAPS_SHARE * seconds / len(built)) | {"graph": str(place)}
        yield "maps", maps.measure_all(str(place), built, MAPS_SHARE * seconds) | {"graph": str(place)}
    begin(f"{place}, network")
    if "network" in options.parts:
        yield "networks", network.measure(place, cloud, NETWORK_SHARE * seconds, options.depth)


PARTS = ("memory", "layers", "maps", "network", "first-step")


def run(
    options: argparse.Namespace,
    begin: Callable[[str], None] = lambda cell: None,
    done: Callable[[str, dict, dict], None] = lambda kind, entry, so_far: None,
    before: dict | None = None,
) -> dict:
    """Measure all that the options name; return the report as plain values, times in seconds, memory in bytes. before:
    an earlier report, whose other cells are kept. ``done`` is called at each entry's end with its kind, the entry and
    the report so far.
    """
    description = machine.describe(options.threads)
    limits = limits_of(options.threads, options.modes)
    places = clouds.places(options.clouds, options.voxels, options.seed)
    shares = Budget(options.budget, {str(place): weight(clouds.RECIPES[place.scan].points, 2_000) for place in places})
    lists: dict[str, list[dict]] = {"graphs": [], "cells": [], "maps": [], "networks": []}
    skipped: dict[str, str] = {}
    first: dict = {}

    def so_far() -> dict:
        merged = merging.merge(
            before,
            {
                "machine": description,
                "roofline": limits["forward"].to_dict(),
                "bfloat16_gemm_flops_per_s": limits["bfloat16"].flops,
                "contenders": {name: contenders.NOTES[name] for name in options.contenders},
                **{key: list(entries) for key, entries in lists.items()},
                "skipped": skipped,
                "first_steps": first or (before or {}).get("first_steps", {}),
            },
        )
        return merged | {"summary": summarise(merged)}

    for place in places:
        start = time.perf_counter()
        cloud = place.cloud()
        shares.pause(time.perf_counter() - start)
        if cloud is None:
            skipped[str(place)] = clouds.MISSING
            shares.take(str(place))
            for _ in range(4):
                begin(f"{place} skipped")
            continue
        origin = clouds.RECIPES[place.scan].origin
        lists["graphs"].append(
            {"name": str(place), "origin": origin, "points": len(cloud.voxel_of), "voxels": len(cloud)}
        )
        for kind, entry in measure_place(place, cloud, options, limits, shares, begin):
            lists[kind].append(entry)
            done(kind, entry, so_far())
        if "first-step" in options.parts and not first:
            start = time.perf_counter()
            first |= {
                "where": f"{place}, MinkUNet-{options.depth}",
                "seconds": network.first_steps(place, options.threads, options.depth),
            }
            shares.pause(time.perf_counter() - start)
    return so_far()


def limits_of(threads: int, modes: Sequence[str]) -> dict[str, roofline.Roofline]:
    """The machine's limits by mode: in bfloat16 products have a peak of their own."""
    measured = roofline.measure(threads)
    half = roofline.with_products_in(measured, MODES["bfloat16"][0]) if "bfloat16" in modes else measured
    return {mode: half if mode == "bfloat16" else measured for mode in MODES}


def summarise(results: Mapping) -> dict:
    """``summary.summarise`` of the layers; and the geometric means of the ratios in memory, of maps, of networks."""
    networks = results["networks"]
    return summary.summarise(results["cells"], ("mode", "graph", "kind")) | {
        "wrong": [{"where": each["where"], "reason": each["wrong"]} for each in results["cells"] if each["wrong"]]
        + [{"where": each["where"], "reason": {OURS: each["wrong"]}} for each in networks if each["wrong"]],
        "memory": summary.mean_or_none(cell["memory_ratio"] for cell in results["cells"]),
        "maps": summary.mean_or_none(each["speedup"] for each in results["maps"]),
        "maps_by_kind": maps.by_kind(results["maps"]),
        "networks": {
            what: summary.mean_or_none(each["speedup"][what] for each in networks) for what in ("inference", "step")
        },
    }


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=1800.0, parents=[gpu_options.device_parser()])
    parser.add_argument("--clouds", nargs="+", choices=tuple(clouds.RECIPES), help=f"by default {clouds.DEFAULT}")
    parser.add_argument("--voxels", nargs="+", type=float, metavar="METRES", help="by default those of each cloud")
    parser.add_argument("--depth", type=int, choices=(18, 34), default=18, help="of MinkUNet")
    parser.add_argument("--modes", nargs="+", choices=tuple(MODES), default=list(MODES))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="what to measure, by default all: %(choices)s")
    parser.add_argument(
        "--dtype", choices=tuple(gpu_options.DTYPES), default="float32", help="of all values, with --device cuda"
    )
    cli.add_append(parser)
    options = parser.parse_args(argv)
    # what starts processes takes longer than the rest
    options.parts = options.parts or (["layers", "maps", "network"] if options.quick else list(PARTS))
    options.clouds = options.clouds or (["small"] if options.quick else list(clouds.DEFAULT))
    options.voxels = options.voxels or ([0.4] if options.quick else None)
    if any(not voxel > 0 for voxel in options.voxels or ()):
        parser.error(f"--voxels must be positive, got {options.voxels}")
    if options.dtype != "float32" and options.device != "cuda":
        parser.error(f"--dtype {options.dtype} is measured with --device cuda alone; --modes bfloat16 on a CPU")
    if options.quick:
        options.budget = min(options.budget, 20.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``sparse_conv.json`` and ``.png``. 1 if nothing ran or an answer of ours or
    PyTorch's was wrong, else 0.
    """
    options = arguments(argv)
    console = cli.start(options)
    if options.device == "cuda":
        return gpu.main(options, clouds.places(options.clouds, options.voxels, options.seed), console)
    path = options.out / "sparse_conv.json"

    def done(kind: str, entry: dict, so_far: dict) -> None:
        # a long run that is stopped leaves what it has measured
        machine.write_json(path, so_far)
        if kind == "cells":
            console.print(tables.line(entry), highlight=False)

    count = len(clouds.places(options.clouds, options.voxels, options.seed))
    with report.progress(console, 4 * count) as begin:
        results = run(options, begin, done, merging.read(path) if options.append else None)
    for name, reason in results["skipped"].items():
        console.print(f"[yellow]{name} skipped:[/] {reason}")
    if not results["graphs"]:
        console.print("[red]nothing to run[/]")
        return 1
    tables.show(results, console)
    order = {op: number for number, op in enumerate(dict.fromkeys(cell["op"] for cell in results["cells"]), 1)}
    numbered = [cell | {"layer": order[cell["op"]]} for cell in results["cells"]]
    report.finish(
        results,
        report.panels_of(numbered, "mode", "graph", "layer"),
        "sparse_conv",
        "layer, in the order of the network",
        options.out,
        console,
    )
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
