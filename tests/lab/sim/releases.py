# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's own wheels claim to be: data only.

Versions, tags, pins among these packages, upload times and the architectures of the GPU code are those of the real
wheels. Left out are all other dependencies, so that a stack is small.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DRIVER_VERSION = "580.126.09"
DRIVER_CUDA = 13000  # as cuDriverGetVersion says it

# Architectures of one compilation unit, and how many units a library holds of it.
Unit = tuple[int, tuple[str, ...]]


@dataclass(frozen=True)
class Wheel:
    """One wheel that the lab builds."""

    project: str
    version: str
    tag: str
    upload_time: str
    requires_python: str
    package: str  # folder of its sources here, and its import name
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    cuda: str = ""
    code: dict[str, tuple[Unit, ...]] = field(default_factory=dict)

    @property
    def filename(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-{self.tag}.whl"


_TORCH_BASE = ("75", "80", "86", "90", "100", "120")


def _torch(version: str, upload_time: str, special: tuple[str, ...]) -> Wheel:
    return Wheel(
        "torch",
        version,
        "cp313-cp313-manylinux_2_28_x86_64",
        upload_time,
        ">=3.10",
        "torch",
        # The real one asks for this library through the cuda-toolkit meta package.
        requires=("nvidia-cuda-runtime==13.0.96",),
        cuda="13.0",
        code={"torch/lib/libtorch_cuda.so": ((8, _TORCH_BASE), (1, special))},
    )


def _kernel(version: str, upload_time: str, requires: tuple[str, ...], units: int, blackwell: tuple[str, ...]) -> Wheel:
    datacentre = tuple(arch for arch in blackwell if arch.startswith("10"))
    common = ("80", "89", "90", "90a", *blackwell)
    mla = ("90a", *(datacentre if "103a" in datacentre else (*datacentre, "103a")))
    return Wheel(
        "sglang-kernel",
        version,
        "cp310-abi3-manylinux2014_x86_64",
        upload_time,
        ">=3.10",
        "sgl_kernel",
        requires=requires,
        code={
            "sgl_kernel/sm100/common_ops.abi3.so": ((units, common),),
            "sgl_kernel/sm90/common_ops.abi3.so": ((units, common),),
            "sgl_kernel/spatial_ops.abi3.so": ((2, common),),
            "sgl_kernel/flashmla_ops.abi3.so": ((2, mla),),
            "sgl_kernel/flash_ops.abi3.so": ((2, ("80", "86", "90a")),),
        },
    )


def _sglang(version: str, requires_python: str, requires: tuple[str, ...], times: dict[str, str]) -> list[Wheel]:
    return [
        Wheel("sglang", version, f"{python}-{python}-manylinux_2_34_x86_64", time, requires_python, "sglang", requires)
        for python, time in times.items()
    ]


def _flashinfer(version: str, upload_time: str) -> Wheel:
    return Wheel(
        "flashinfer-python",
        version,
        "py3-none-any",
        upload_time,
        "<4.0,>=3.10",
        "flashinfer",
        requires=("torch",),
        extras=("cu12", "cu13"),
    )


WHEELS: tuple[Wheel, ...] = (
    _torch("2.14.1", "2026-09-30T17:53:42Z", ("75", "80", "86", "90", "100", "103f", "120")),
    _torch("2.11.0", "2026-03-23T18:08:47Z", (*_TORCH_BASE, "100a", "103a", "120a", "121a")),
    _kernel("0.4.10", "2026-10-15T23:05:58Z", ("torch==2.14.1",), 35, ("100f", "120a")),
    _kernel("0.4.2.post2", "2026-05-15T01:16:39Z", (), 56, ("100a", "103a", "120a")),
    _flashinfer("0.7.2", "2026-10-15T20:55:34Z"),
    _flashinfer("0.6.11.post1", "2026-05-13T01:31:28Z"),
    Wheel("flashinfer-cubin", "0.6.11.post1", "py3-none-any", "2026-05-13T01:31:43Z", ">=3.8", "flashinfer_cubin"),
    *_sglang(
        "0.5.23",
        ">=3.11",
        ("torch==2.14.1", "sglang-kernel==0.4.10", "flashinfer_python[cu13]==0.7.2"),
        {"cp311": "2026-10-30T01:34:37Z", "cp312": "2026-10-30T01:34:45Z", "cp313": "2026-10-30T01:34:55Z"},
    ),
    *_sglang(
        "0.5.12.post1",
        ">=3.10",
        (
            "torch==2.11.0",
            "sglang-kernel==0.4.2.post2",
            "flashinfer_python==0.6.11.post1",
            "flashinfer_cubin==0.6.11.post1",
        ),
        {"cp311": "2026-05-23T11:23:48Z", "cp312": "2026-05-23T11:23:53Z", "cp313": "2026-05-23T11:23:59Z"},
    ),
)


def without_code_for(wheel: Wheel, capability: str) -> Wheel:
    """The same wheel by name, version and metadata, whose libraries hold nothing for one architecture (``120``)."""
    code = {
        path: tuple((count, tuple(arch for arch in archs if arch.rstrip("af") != capability)) for count, archs in units)
        for path, units in wheel.code.items()
    }
    return Wheel(**{**wheel.__dict__, "code": code})
