"""The tests of torch-spline-conv itself."""

from tests.integrations.originals import run_tests


def test_of_torch_spline_conv(tmp_path):
    outcome = run_tests("pytorch_spline_conv", tmp_path, "torch_spline_conv")
    assert outcome.failed == [] and outcome.passed >= 19, outcome.text[-4000:]
