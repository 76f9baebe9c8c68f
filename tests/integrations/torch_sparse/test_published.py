"""The tests of torch-sparse itself. Our matrices are no classes of TorchScript, which is off here."""

from tests.integrations.originals import run_tests


def test_of_torch_sparse(tmp_path):
    outcome = run_tests("pytorch_sparse", tmp_path, "torch_sparse", "torch_scatter", scripted=False)
    assert outcome.failed == [] and outcome.passed >= 151, outcome.text[-4000:]
