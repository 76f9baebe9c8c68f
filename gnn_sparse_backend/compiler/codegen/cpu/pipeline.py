"""TVM's passes for the CPU, with ours among them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from ....deferred import compilation_pipeline, tirx, tvm
from .argument_checks import check_by_table, describe_parameters
from .divisions import call_divisions
from .functions import call_vector_functions

Pipeline: TypeAlias = (
    "tuple[tvm.ir.transform.Pass, Callable[[], tvm.ir.transform.Pass], Callable[[], tvm.ir.transform.Pass]]"
)
"""The passes over the whole module, and the makers of those that finish the host's part and the device's."""


@functools.cache
def cpu_pipeline() -> str:
    """TVM's name of the pipeline, which it knows from the first call on."""
    name = "gnn_sparse_backend_cpu"
    compilation_pipeline.register_tir_pipeline(name, _cpu_pipeline)
    return name


def _cpu_pipeline() -> Pipeline:
    """The parameters are described while they have shapes. The checks are replaced where TVM has made them, and
    elementary functions behind the pass that makes vectors: they are chosen by their width."""
    lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("default")
    finishing = check_by_table, call_divisions, call_vector_functions
    described = tvm.ir.transform.Sequential([_each(describe_parameters), lower])
    return (
        described,
        lambda: tvm.ir.transform.Sequential([*map(_each, finishing), finish_host()]),
        finish_device,
    )


def _each(rewrite: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.ir.transform.Pass:
    return tirx.transform.prim_func_pass(
        lambda function, module, context: rewrite(function), opt_level=0, name=f"gsb.{rewrite.__name__}"
    )
