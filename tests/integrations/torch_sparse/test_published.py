"""The tests of torch-sparse itself, those that compile matrices by TorchScript among them."""

from tests.integrations.originals import run_tests


def test_of_torch_sparse(tmp_path):
    outcome = run_tests("pytorch_sparse", tmp_path, "torch_sparse", "torch_scatter")
    assert outcome.failed == [] and outcome.passed >= 151, outcome.text[-4000:]
