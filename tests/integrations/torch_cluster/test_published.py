"""The tests of torch-cluster itself."""

from tests.integrations.originals import run_tests


def test_of_torch_cluster(tmp_path):
    """All but those that want the points of the lowest numbers among equally near ones, where others are drawn."""
    outcome = run_tests("pytorch_cluster", tmp_path, "torch_cluster")
    assert {name.partition("[")[0] for name in outcome.failed} <= {"test_radius.py::test_radius"}, outcome.text[-4000:]
    assert len(outcome.failed) <= 4 and outcome.passed >= 60
