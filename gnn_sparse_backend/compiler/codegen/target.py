"""What a kernel is compiled for."""

from __future__ import annotations

import functools
import hashlib

from ... import system
from ...deferred import tvm
from ...frozen import dataclass
from ..language.types import ACCUMULATOR, BYTES

KINDS = ("llvm", "cuda")
_SYSTEMS = {"darwin": system.MACOS, "macos": system.MACOS, "windows": system.WINDOWS, "linux": system.LINUX}
NEON_BYTES = 16
FAST_TWOS = ("znver4", "znver5")
"""LLVM's names of x86 processors that start as many products of pairs as multiply-adds of float32: AMD's from Zen 4 on,
by their manuals. Intel's start half as many (measured on a Xeon), and features widened first are faster. Arm's start as
many, by the manuals of Neoverse V1 and V2.
"""


@dataclass(frozen=True)
class Target:
    """A machine that kernels are compiled for: immutable, comparable, and usable as a cache key.

    Parameters
    ----------
    kind : "llvm" or "cuda"
    cpu : LLVM's name of the processor (of the host, when the kind is "cuda").
    triple : LLVM's target triple of the host, for example "x86_64-conda-linux-gnu".
    features : the processor's features in LLVM's spelling ("avx512f"), sorted.
    disabled : features that LLVM takes for granted on such a processor and that this machine lacks (hidden by a
        hypervisor, say). Code for them would die of an illegal instruction.
    enabled : features that LLVM does not expect of such a processor and that this machine has (a hypervisor may give a
        new processor the model number of an old one).
    arch : compute architecture of the GPU, for example "sm_90"; empty when the kind is "llvm".
    sve : bytes of Arm's scalable vectors that code counts on, and is wrong on a machine of another length; 0 where they
        are no longer than NEON's, which code uses then.
    """

    kind: str
    cpu: str
    triple: str
    features: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    arch: str = ""
    sve: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"target kind {self.kind!r} is unknown; use one of {', '.join(KINDS)}")
        if (self.kind == "cuda") != bool(self.arch):
            raise ValueError(
                f"a {self.kind!r} target with arch={self.arch!r}: an arch belongs to cuda targets, and to them only"
            )
        if self.sve and (self.sve <= NEON_BYTES or self.sve % NEON_BYTES):
            raise ValueError(f"a target with sve={self.sve}: it is a multiple of {NEON_BYTES} bytes above that, or 0")

    @property
    def key(self) -> str:
        """A short text that differs wherever the generated code may differ; fit for a file name."""
        content = "\n".join(
            [
                self.cpu,
                self.triple,
                *(",".join(names) for names in (self.features, self.disabled, self.enabled)),
                *[f"sve {self.sve}"] * bool(self.sve),
            ]
        )
        host = f"{self.cpu}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
        return f"{self.kind}-{self.arch}-{host}" if self.arch else f"{self.kind}-{host}"

    @property
    def architecture(self) -> str:
        """The processor's architecture, "x86_64" or "aarch64", whichever of its names the triple uses."""
        return system.architecture_of(self.triple.partition("-")[0])

    @property
    def system(self) -> str:
        """The operating system of the triple, as `system.name` has it; Linux where it names none that is known."""
        words = self.triple.split("-")[1:]
        return next((found for word in words for begin, found in _SYSTEMS.items() if word.startswith(begin)), "linux")

    @property
    def machine(self) -> str:
        """What the code runs on, as `system.machine` has it."""
        return system.machine(self.system, self.architecture)

    @property
    def is_arm(self) -> bool:
        return self.architecture == "aarch64"

    @property
    def vector_bytes(self) -> int:
        """Width of the widest vector register of the CPU in bytes: 64 with AVX-512, 32 with AVX, on Arm that of its
        scalable vectors where code counts on it, otherwise 16.
        """
        # TVM's target.llvm_get_vector_width answers 512 bits for every x86 processor, Haswell included.
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features else self.sve or NEON_BYTES

    @property
    def registers(self) -> int:
        """Vector registers: 32 with AVX-512 and on Arm, otherwise 16."""
        return 32 if self.is_arm or "avx512f" in self.features else 16

    def lanes(self, dtype: str) -> int:
        """How many sums of values of a type a vector register of the CPU holds."""
        return self.vector_bytes // BYTES[ACCUMULATOR[dtype]]

    @property
    def has_avx512_bf16(self) -> bool:
        """Whether the CPU multiplies pairs of bfloat16 into float32 (``vdpbf16ps``)."""
        return "avx512bf16" in self.features

    @property
    def has_arm_bf16(self) -> bool:
        """Whether the CPU multiplies pairs of bfloat16 into float32 (``bfdot``), and 2 x 4 by 4 x 2 (``bfmmla``)."""
        return self.is_arm and "bf16" in self.features

    @property
    def has_amx_bf16(self) -> bool:
        """Whether this process may multiply tiles of bfloat16 (``tdpbf16ps``), and the CPU rounds vectors to it."""
        return {"amx-bf16", "amx-tile", "avx512bf16"}.issubset(self.features)

    @property
    def has_fast_bf16_pairs(self) -> bool:
        """Whether the CPU multiplies pairs of bfloat16 faster than it does float32: Intel's starts ``vdpbf16ps`` every
        second cycle only.
        """
        return self.has_arm_bf16 or (self.has_avx512_bf16 and self.cpu.startswith(FAST_TWOS))

    @property
    def has_bf16_tiles(self) -> bool:
        """Whether the CPU multiplies tiles of bfloat16 faster than those of float32: by AMX, ``bfmmla`` or
        ``vdpbf16ps``.
        """
        return self.has_amx_bf16 or self.has_fast_bf16_pairs

    @property
    def is_cuda(self) -> bool:
        return self.kind == "cuda"

    @property
    def host(self) -> dict[str, object]:
        """What TVM is told of the CPU."""
        told: dict[str, object] = {"kind": "llvm", "mcpu": self.cpu, "mtriple": self.triple}
        if self.disabled or self.enabled:
            told["mattr"] = [*(f"-{name}" for name in self.disabled), *(f"+{name}" for name in self.enabled)]
        if self.sve:
            # makes vectors of this length of those whose length is in the program; TVM says nothing of it by itself
            told["cl-opt"] = [f"-aarch64-sve-vector-bits-{end}:uint={8 * self.sve}" for end in ("min", "max")]
            told["vector-width"] = 8 * self.sve
        return told

    def to_tvm(self) -> tvm.target.Target:
        """TVM's description of the same target; a cuda target brings its host along."""
        return _tvm_target(self)

    def __str__(self) -> str:
        return (
            f"cuda {self.arch} (host {self.cpu})"
            if self.is_cuda
            else f"llvm {self.cpu}, {8 * self.vector_bytes}-bit vectors"
        )


@functools.cache
def _tvm_target(target: Target) -> tvm.target.Target:
    if not target.is_cuda:
        return tvm.target.Target(target.host)
    return tvm.target.Target({"kind": "cuda", "arch": target.arch}, host=target.host)
