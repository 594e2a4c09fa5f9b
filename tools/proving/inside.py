# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in the target's root file system: builds the stack as stack_build does, proves it as stack_verify does, compiles.

Reads one JSON object from standard input and writes one to standard output.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _lock, _proof, _stack, _uv, _verify
from ansible_collections.blackwell.inference.plugins.module_utils._elf import FileReader, read_elf
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import read_code
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

# CCCL's headers come with another wheel than nvcc: a mixed toolkit compiles the kernel and fails at the includes.
SOURCE = """
#include <cub/cub.cuh>
#include <cuda/std/array>
__global__ void scale(float *x) { cuda::std::array<float, 1> y{2.0f}; x[threadIdx.x] *= y[0]; }
int main() { return 0; }
"""


def compile_for(home: str, target: str) -> tuple[str | None, list[str]]:
    """(the compiler's last words or None, the architectures that our own scanner finds in what it made)."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "a.cu"), os.path.join(folder, "a.so")
        with open(source, "w", encoding="utf-8") as file:
            file.write(SOURCE)
        argv = [f"{home}/bin/nvcc", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-arch", f"sm_{target}", "-o", binary, source]
        environ = {"PATH": f"{home}/bin:/usr/bin:/bin", "CUDA_HOME": home, "LANG": "C.UTF-8"}
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            return " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:]), []
        with FileReader(binary) as reader:
            return None, sorted(read_code(reader, read_elf(reader)).code)


def count_flags(text: str) -> int:
    """Options that the help describes, without those that its descriptions only mention."""
    heads = [re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines() if line.startswith("  -")]
    return len({word for head in heads for word in re.findall(r"(?<!\S)--[a-z0-9][a-z0-9-]*", head)})


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    lock = _lock.parse(asked["lock"])
    store = _stack.Store(asked["store"], os.path.join(asked["store"], "wheels"))
    for folder in (store.stacks, store.cache):
        os.makedirs(folder, exist_ok=True)
    try:
        _stack.build(store, lock, asked["uv"], asked["python"], _uv.runner())
    except Refusal as refusal:
        json.dump({"error": str(refusal)}, sys.stdout)
        return
    path = store.stack(lock.id)
    evidence = _proof.gather(path, asked["exempt"], _proof.engine_help(path, "inference", 900))
    checks = _verify.run_checks(evidence, asked["capabilities"], asked["flags"])
    compiled: dict[str, Any] = {}
    for target in asked["targets"] if lock.toolkit else []:
        words, found = compile_for(os.path.join(path, "cuda"), target)
        compiled[target] = {"error": words, "code": found}
    json.dump({"checks": checks, "compiled": compiled, "flags": count_flags(evidence.help.out)}, sys.stdout)


if __name__ == "__main__":
    main()
