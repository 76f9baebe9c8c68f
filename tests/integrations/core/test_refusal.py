"""Calls of a framework: what is counted, what the framework gets, and every reason with its remedy."""

import ast
import inspect
import logging
from pathlib import Path

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.packs.errors import NoKernelError
from gnn_sparse_backend.integrations.core import counters
from gnn_sparse_backend.integrations.core.refusal import PASS, Boundary, NoKernelWarning, Refusal, attempt
from gnn_sparse_backend.integrations.core.remedies import REMEDIES, remedy_of
from gnn_sparse_backend.runtime import devices

ROOT = Path(__file__).parents[3]


class Later:
    """What is not computed yet."""


class Made(Boundary):
    name = "made_up"
    deferred = frozenset([Later, tuple])

    def computed(self, x, reason):
        return tuple(self.computed(each, reason) for each in x) if type(x) is tuple else f"computed: {reason}"


MADE = Made()


def answers(answer):
    """A function whose calls are answered so, and the arguments that its original got."""
    got = []

    def original(x, *rest, reduce="sum", **named):
        """Of the framework."""
        got.append((x, *rest, reduce, named))
        return "theirs"

    def run(x, *rest, reduce="sum", **named):
        return answer

    return lambda operator: (MADE.admit(original, operator, run), got)


def calls():
    return gsb.status().to_dict()["calls"].get("made_up", {})


def test_what_ran_here_is_counted_under_its_name():
    function, got = answers(("ours", "add"))("sum")
    assert function(1) == "ours" and function(x=1, reduce="max") == "ours" and got == []
    assert calls() == {"add": {"ours": 2, "fallbacks": {}}}


def test_what_is_lazy_is_not_counted():
    function, _ = answers((Later, None))("sum")
    assert function(1) is Later and calls() == {}


def test_a_refusal_is_counted_and_the_framework_gets_its_arguments():
    function, got = answers(Refusal("number of rows"))("sum")
    assert function(1, 2, 3, reduce="max", y=4) == "theirs"
    assert got == [(1, 2, 3, "max", {"y": 4})]
    assert calls() == {"sum": {"ours": 0, "fallbacks": {"number of rows": 1}}}


def test_what_was_found_at_first_is_told_beside_the_reason(caplog):
    caplog.set_level(logging.INFO, logger=counters.__name__)
    for found in ("", "row 3", "row 4"):
        function, _ = answers(Refusal("number of rows", found))("sum")
        function(1)
    assert calls() == {"sum": {"ours": 0, "fallbacks": {"number of rows": 3}}}
    assert "number of rows: 3, at first row 3\n" in f"{gsb.status()}\n"
    counters.reset_status()
    assert "row 3" not in str(gsb.status())
    function, _ = answers(Refusal("missing feature", "row 5"))("quoted")
    function(1)
    assert caplog.messages[-1].startswith("made_up runs quoted itself: missing feature: row 5 (mend the call")


def test_a_call_whose_kernel_cannot_be_made_here_is_the_frameworks_and_a_warning_says_why():
    def run(x):
        raise NoKernelError("there is no room: set TMPDIR")

    function = MADE.admit(lambda x: "theirs", "sum", run)
    with pytest.warns(NoKernelWarning, match="there is no room: set TMPDIR. Until then frameworks run by themselves"):
        assert function(1) == "theirs"
    assert calls() == {"sum": {"ours": 0, "fallbacks": {"no kernel can be made or loaded here, see gsb doctor": 1}}}
    with pytest.warns(NoKernelWarning, match="there is no room"):
        assert isinstance(attempt(run)(1), Refusal)
    assert attempt(lambda x: x + 1)(1) == 2


def test_an_operator_may_be_named_after_an_argument():
    function, _ = answers(Refusal("number of rows"))("scatter.{reduce}")
    function(1, reduce="any")
    function(1)
    assert {operator: of["fallbacks"] for operator, of in calls().items()} == {
        "scatter.any": {"number of rows": 1},
        "scatter.sum": {"number of rows": 1},
    }


@pytest.mark.parametrize("operator, answer", [(None, Refusal("number of rows")), ("sum", PASS)])
def test_what_is_asked_again_or_nothing_of_ours_is_not_counted(operator, answer):
    function, got = answers(answer)(operator)
    assert function(1) == "theirs" and got == [(1, "sum", {})] and calls() == {}


def test_what_is_not_computed_yet_is_computed_for_the_framework():
    later = Later()
    function, got = answers(Refusal("number of rows"))("sum")
    function(later, (later, (later,)), [later], reduce=later)
    done = "computed: number of rows"
    assert got == [(done, (done, (done,)), [later], done, {})]


def test_the_function_looks_like_the_original_and_takes_the_same_calls():
    def original(a, b=2, *, c: int = 3):
        """Of the framework."""

    function = MADE.admit(original, "sum", lambda a, b=2, *, c=3: ((a, b, c), None))
    assert (function.__name__, function.__doc__, function.__wrapped__) == ("original", "Of the framework.", original)
    assert inspect.signature(function) == inspect.signature(original)
    assert function(1) == (1, 2, 3) and function(c=5, a=1) == (1, 2, 5)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        function()
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        function(1, 2, 3)


def test_an_error_of_the_framework_is_alone():
    def original():
        raise KeyError("theirs")

    with pytest.raises(KeyError) as found:
        MADE.admit(original, "sum", lambda: Refusal("number of rows"))()
    assert found.value.__context__ is None


def test_a_method_is_bound():
    class Layer:
        def forward(self, x):
            return "theirs"

    Layer.forward = MADE.admit(Layer.forward, "sum", lambda layer, x: (type(layer), None) if x else PASS)
    assert Layer().forward(1) is Layer and Layer().forward(0) == "theirs"


def test_a_reading_does_not_count():
    counters.ours("made_up", "sum")
    assert [calls()["sum"]["ours"] for _ in range(3)] == [1, 1, 1]
    counters.ours("made_up", "sum")
    assert calls()["sum"]["ours"] == 2


def test_the_log_tells_the_remedy_with_the_reason_once(caplog):
    function, _ = answers(Refusal("a reason with dtype int64" if remedy_of("dtype int64") is None else "dtype int64"))(
        "x"
    )
    with caplog.at_level(logging.INFO, "gnn_sparse_backend"):
        function(1)
        function(1)
    (told,) = [record.getMessage() for record in caplog.records if record.name.endswith("core.counters")]
    assert told == f"made_up runs x itself: dtype int64 ({remedy_of('dtype int64')})"


def test_the_more_telling_reason_is_found_first():
    assert (
        remedy_of("the features are torch.int64") == remedy_of("dtype int64") != remedy_of("the features are a Later")
    )
    used = remedy_of("the message is used by add inside an autograd function or compiled code")
    assert used == Refusal("its softmax").remedy is not None
    assert remedy_of("no such reason") is None and remedy_of("dtype ") is None


# Every reason in the code, as it is written there.

TAKE_A_REASON = {"Refusal", "computed", "materialise", "segments", "settle", "_settle", "value", "value_below_autograd"}
HOLD_A_REASON = {"reason", "NO_KERNEL", "OUT_OF_RANGE", "_BELOW", "_LOOK"}


def reasons_in(tree):
    """Texts that are given to what takes a reason, with {} for what is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) in TAKE_A_REASON:
            given = node.args[:1] if getattr(node.func, "id", None) == "Refusal" else node.args[-1:]
        elif isinstance(node, ast.Assign) and HOLD_A_REASON & {
            name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
        }:
            given = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        else:
            continue
        for text in map(text_of, given):
            if text:
                yield text


def text_of(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def written():
    sources = sorted((ROOT / "gnn_sparse_backend" / "integrations").rglob("*.py"))
    texts = {text: path for path in sources for text in reasons_in(ast.parse(path.read_text()))}
    returned = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(devices._why_not.__wrapped__)))
        if isinstance(node, ast.Return)
    ]
    return texts | {text_of(node): devices.__file__ for node in returned if text_of(node)}


def test_every_reason_of_the_code_is_in_the_table_and_the_other_way_round():
    found = written()
    assert {text: path for text, path in found.items() if text not in REMEDIES} == {}, "add them to core/remedies.py"
    assert REMEDIES.keys() - found.keys() == set(), "no code gives these any more"


def rows():
    """The table of the page: by what to do, in the order of the table here."""
    by_remedy = {}
    for reason, remedy in REMEDIES.items():
        by_remedy.setdefault(remedy, []).append(f"`{reason}`".replace("{}", "..."))
    return [f"| {', '.join(reasons)} | {remedy} |" for remedy, reasons in by_remedy.items()]


def test_every_reason_is_on_the_page_with_its_remedy():
    page = (ROOT / "docs" / "howto" / "fallbacks.md").read_text()
    table = page.split("| --- | --- |\n")[1].split("\n\n")[0]
    assert table == "\n".join(rows()), "the table of docs/howto/fallbacks.md is this:\n" + "\n".join(rows())
