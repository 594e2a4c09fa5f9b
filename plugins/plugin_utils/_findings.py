# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the resolver can find, and the words that a rule's sentence may use. Rules that ask for anything else are refused."""

from __future__ import annotations

# Known of a host with a model, whatever release is looked at.
HOST_WORDS = frozenset({"architectures", "backend", "hybrid", "machine", "mamba", "quantization", "tensor_parallel_used", "vision"})
# Known besides when one release is looked at, on one class of card.
RELEASE_WORDS = HOST_WORDS | {
    "capability",
    "cuda_major",
    "flashinfer",
    "kernel",
    "kernel_name",
    "kernel_version",
    "python",
    "sglang",
    "shared_memory",
    "speculative",
    "torch",
}
# Known besides when something stands against a release.
BACKEND_WORDS = frozenset({"allowed", "instead"})

# Finding: the words that it brings along. Those of the host stand against every release.
OF_HOST: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "capability_unknown": "gpu",
        "card_busy": "gpu found",
        "card_inaccessible": "gpu found",
        "card_lost": "gpu",
        "card_mig": "gpu",
        "closed_modules": "capability",
        "context_too_long": "found wanted",
        "does_not_fit": "found available wanted",
        "driver_absent": "",
        "driver_library_mismatch": "found wanted",
        "expected_capability_differs": "found wanted",
        "facts_error": "code found wanted remedy",
        "mamba_needless": "found",
        "memory_unknown": "gpu",
        "mixed_host": "found",
        "model_incomplete": "found",
        "mtp_unusable": "found",
        "no_such_gpu": "found wanted",
        "ports_collide": "found wanted ports_source",
        "too_few_cards": "found parallel cards wanted",
        "too_many_instances": "found parallel cards wanted",
        "uuid_unknown": "gpu",
        "weights_unknown": "",
    }.items()
}
OF_RELEASE: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "another_release_pinned": "wanted",
        "backend_not_allowed": "found backends_source",
        "cuda_majors_differ": "found wanted",
        "driver_too_old": "found wanted",
        "glibc_too_old": "found wanted",
        "kernel_code_absent": "found",
        "kernel_not_inspected": "",
        "kernel_pair_differs": "found wanted",
        "machine_absent": "found wanted",
        "mamba_choice_unknown": "found wanted mamba_source",
        "model_not_listed": "found",
        "model_unknown": "found wanted models_source",
        "nccl_too_old": "found wanted",
        "no_backend": "",
        "not_proven": "",
        "pinned_without_proof": "found",
        "proven_elsewhere": "found wanted",
        "python_absent": "found wanted",
        "too_young": "found wanted",
        "toolkit_absent": "wanted",
        "torch_code_absent": "found",
        "torch_cpu_only": "",
    }.items()
}
# Nothing could be launched if a rule let these pass.
ALWAYS_REFUSED = frozenset(
    {"backend_not_allowed", "mamba_choice_unknown", "no_backend", "python_absent", "toolkit_absent", "torch_cpu_only"}
)


def words_of(finding: str | None, refuses: bool) -> frozenset[str]:
    """All words that a rule may use; finding None: a rule that is about no finding."""
    if finding in OF_HOST:
        return HOST_WORDS | OF_HOST[finding]
    if finding in OF_RELEASE:
        return RELEASE_WORDS | BACKEND_WORDS | OF_RELEASE[finding]
    return RELEASE_WORDS | BACKEND_WORDS if refuses else RELEASE_WORDS
