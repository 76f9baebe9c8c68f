"""What all reports share: the summary's lines, and the picture."""

from io import StringIO

from rich.console import Console

from benchmarks.support import report, summary


def cell(where, speedup, x=1):
    timings = {"gsb": {"median": 1e-3, "samples": 9}, "peer": {"median": 1e-3 * (speedup or 1), "samples": 2}}
    return {
        "where": where,
        "x": x,
        "group": "g",
        "timings": timings,
        "wrong": {} if speedup else {"peer": "y is off"},
        "best_ours": "gsb",
        "best_peer": "peer",
        "speedup": speedup,
        "reason": f"reason of {where}",
    }


def printed(found):
    console = Console(file=StringIO(), width=200, color_system=None)
    report.print_summary(found, console)
    return console.file.getvalue()


def test_the_five_worst_cells_come_with_their_reasons():
    cells = [cell(f"cell {number}", number / 4) for number in (7, 3, 1, 6, 2, 5, 4)]
    found = summary.summarise(cells, ("group",))
    assert [entry["where"] for entry in found["worst"]] == [f"cell {number}" for number in (1, 2, 3, 4, 5)]
    text = printed(found)
    assert "1. cell 1: 0.25 (gsb 1 ms, peer 250 us)" in text and "reason of cell 5" in text and "cell 6" not in text
    assert "by group: g 0.85" in text


def test_wrong_answers_are_printed():
    assert "WRONG: here: peer: y is off" in printed(summary.summarise([cell("here", None)], ()))


def test_entries_of_tables():
    found = cell("here", 2.0) | {"wrong": {"liar": "y is off"}}
    assert report.median(found, "gsb") == "1" and report.median(found, "peer") == "~2"
    assert "wrong" in report.median(found, "liar") and report.median(found, "absent") == report.MISSING
    assert report.ratio(None) == report.percent(None) == report.milliseconds(None) == report.MISSING
    assert "green" in report.ratio(1.0) and "red" in report.ratio(0.99) and report.percent(0.256) == "26 %"


def test_panels_and_their_picture(tmp_path):
    cells = [cell("a", 2.0, x=8), cell("b", None, x=4), cell("c", 0.5, x=1)]
    panels = report.panels_of(cells, "group", "best_peer", "x")
    assert panels == {"g": {"peer": [(8, 2.0), (1, 0.5)]}}
    for drawn in (panels, {}, {"empty": {"line": []}}, {str(n): panels["g"] for n in range(6)}):
        path = report.draw_ratios(drawn, "x", tmp_path / "picture.png")
        assert path.read_bytes().startswith(b"\x89PNG")
