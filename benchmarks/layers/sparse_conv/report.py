"""Tables of the report of ``benchmarks.sparse_conv`` (plain values, times in seconds, memory in bytes)."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.layers.sparse_conv import contenders, maps, network, spconv
from benchmarks.support import report
from benchmarks.support.reasons import duration


def line(cell: dict) -> str:
    """A cell in a line."""
    times = ", ".join(f"{name} {duration(timing['median'])}" for name, timing in cell["timings"].items())
    return (
        f"{cell['where']}: time {report.ratio(cell['speedup'])}, memory {report.ratio(cell['memory_ratio'])} ({times})"
    )


def show(results: dict, console: Console) -> None:
    """Every layer with its time and memory, the maps, the networks, and the summary."""
    report.print_head(results, console)
    for graph in results["graphs"]:
        of_graph = lambda key, name=graph["name"]: [each for each in results[key] if each["graph"] == name]
        console.print(_layers(graph, of_graph("cells"), results["contenders"]))
        console.print(_maps(graph, of_graph("maps")))
        console.print(_networks(of_graph("networks")))
    if results["first_steps"]:
        console.print(_first(results["first_steps"]))
    for name, note in contenders.NOTES.items():
        console.print(f"{name}: {note}")
    for name, reason in {(n, r) for cell in results["cells"] for n, r in cell["unable"].items()}:
        console.print(f"{name}: {reason}")
    if flawed := [cell for cell in results["cells"] if cell["flawed"]]:
        name, reason = next(iter(flawed[0]["flawed"].items()))
        console.print(
            f"[yellow]{name} gave a wrong answer in {len(flawed)} cells[/], where its time is kept all the same; "
            f"{flawed[0]['where']}: {reason}. {spconv.RACE}"
        )
    console.print("ratio: best peer over ours, above 1 we are better. ~: fewer than 5 samples. " + report.ROOFLINE_NOTE)
    report.print_summary(results["summary"], console)
    memory, builds = results["summary"]["memory"], results["summary"]["maps"]
    console.print(
        f"Geometric mean of the ratio in peak memory {report.ratio(memory)}, in building maps {report.ratio(builds)}"
    )
    for kind, ratios in results["summary"]["maps_by_kind"].items():
        console.print(f"maps, {kind}: " + ", ".join(f"{report.ratio(r)} to {name}" for name, r in ratios.items()))


def _layers(graph: dict, cells: list[dict], names: list[str]) -> Table:
    table = report.table(
        f"{graph['name']} ({graph['origin']}): {graph['points']:,} points, {graph['voxels']:,} voxels - a layer whose "
        "map is known: median in ms, peak memory in MiB beyond results",
        ("layer", "mode"),
        ("times", "pairs", *names, "ratio", "first call", *(f"{name} MiB" for name in names), "ratio",
         *report.ROOFLINE_HEADINGS),
    )  # fmt: skip
    for cell in cells:
        peaks = (cell["memory"].get(name, {}) for name in names)
        first = cell["first_call"].get(contenders.OURS)
        table.add_row(
            cell["op"],
            cell["mode"],
            str(cell["count"]),
            f"{cell['pairs']:,}",
            *(report.median(cell, name) for name in names),
            report.ratio(cell["speedup"]),
            report.milliseconds(first),
            *(f"{peak['step'] / 2**20:.1f}" if "step" in peak else report.MISSING for peak in peaks),
            report.ratio(cell["memory_ratio"]),
            *report.roofline_columns(cell),
        )
    return table


def _maps(graph: dict, found: list[dict]) -> Table:
    names = list(maps.NOTES)
    table = report.table(
        f"{graph['name']} - building a map, from coordinates: median in ms", ("map",), ("pairs", *names, "ratio")
    )
    for each in found:
        table.add_row(
            each["where"].removeprefix(f"{graph['name']}, "),
            f"{each['pairs']:,}",
            *(
                report.milliseconds(each["timings"][name]["median"]) if name in each["timings"] else report.MISSING
                for name in names
            ),
            report.ratio(each["speedup"]),
        )
    return table


def _networks(found: list[dict]) -> Table:
    table = report.table(
        "The whole network, maps built anew at each pass: median in ms",
        ("network", "of"),
        (*network.NETWORKS, "ratio", "share of maps"),
    )
    for each in found:
        for what in ("inference", "step"):
            table.add_row(
                each["where"],
                what,
                *(report.milliseconds(each[what][name]["median"]) for name in network.NETWORKS),
                report.ratio(each["speedup"][what]),
                report.percent(each["map_share"]) if what == "inference" else "",
            )
    return table


def _first(found: dict) -> Table:
    table = report.table(
        f"{found['where']}: the first training step of a process, in seconds", ("kernels",), ("first", "second")
    )
    words = {"cold": "ours, none on the disk", "warm": "ours, all on the disk", contenders.TORCH: "plain PyTorch"}
    for key, said in words.items():
        table.add_row(said, *(f"{found['seconds'][key][which]:.2f}" for which in ("first", "second")))
    return table
