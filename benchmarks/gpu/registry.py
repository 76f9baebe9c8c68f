"""The parts of the run, in the order of what an answer is worth."""

from __future__ import annotations

from dataclasses import dataclass

FULL_MINUTES = 8.0
"""What the limits of the parts are made for; with fewer minutes they shrink."""


@dataclass(frozen=True)
class Part:
    """A part. seconds: its limit in a run of ``FULL_MINUTES``. what: it answers, in words. module: where its ``run``
    is. launches: whether it launches kernels, which are then prepared.
    """

    name: str
    seconds: float
    what: str
    module: str = ""
    launches: bool = True

    @property
    def path(self) -> str:
        return self.module or f"benchmarks.gpu.parts.{self.name}"


PARTS = (
    Part("checks", 60, "whether what will probably fail does, and what goes around it"),
    Part("load", 90, "whether a kernel of each family loads, launches and is right"),
    Part("answers", 110, "all families, types and plans, forward and backward, beside float64", "tests.answers"),
    Part("steps", 40, "streams, CUDA graphs, no waiting, and training under PyG with and without the backend"),
    Part("sanitizer", 60, "memcheck and racecheck on the default plans"),
    Part("spmm", 75, "SpMM against cuSPARSE, PyTorch, PyG and Triton"),
    Part("sddmm", 25, "SDDMM against PyTorch"),
    Part("attention", 60, "attention in graphs against PyG, and on masks against FlexAttention and SDPA"),
    Part("rgcn", 50, "relational networks against PyG's two layers"),
    Part("convolution", 30, "sparse convolution against gather, product and scatter"),
    Part("pruned", 30, "pruned weights against cuBLAS, BSR and 2:4"),
    Part("plans", 40, "predicted and measured times of plans, and regret"),
    Part("ncu", 40, "what Nsight Compute says of five kernels"),
    Part("scaling", 60, "operators and epochs on 1 to 16 threads of the CPU", launches=False),
)


def chosen(names: list[str] | None) -> list[Part]:
    """Those of these names, in the order of the registry; all without names."""
    return [part for part in PARTS if not names or part.name in names]
