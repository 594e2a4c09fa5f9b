# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
from sim.model import Mtp, split_shards, tensor_bytes, write_model
from sim.model_tensors import config, mtp_tensors, tensors


def test_the_published_figures() -> None:
    everything = tensors() | mtp_tensors()
    assert len(everything) == 1199
    assert sum(map(tensor_bytes, everything.values())) == 55_562_855_904
    assert len(split_shards(everything)) == 15
    assert config()["text_config"]["layer_types"].count("full_attention") == 16


def header(path: Path) -> tuple[dict[str, dict[str, list[int]]], int]:
    """A safetensors header, and the offset of the first tensor."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


@pytest.mark.parametrize(("mtp", "count"), [("absent", 1184), ("unindexed", 1184), ("indexed", 1199)])
def test_index_and_headers_agree(tmp_path: Path, mtp: Mtp, count: int) -> None:
    write_model(tmp_path, mtp)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == count
    total = 0
    for name in sorted(set(index["weight_map"].values())):
        found, start = header(tmp_path / name)
        del found["__metadata__"]
        assert set(found) == {tensor for tensor, file in index["weight_map"].items() if file == name}
        ends = [entry["data_offsets"] for entry in found.values()]
        assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])]
        assert (tmp_path / name).stat().st_size == start + ends[-1][1]
        total += ends[-1][1]
    assert total == index["metadata"]["total_size"]
    assert (tmp_path / "mtp.safetensors").exists() == (mtp == "unindexed")


def test_the_weights_take_no_disk(tmp_path: Path) -> None:
    write_model(tmp_path)
    assert sum(path.stat().st_blocks for path in tmp_path.iterdir()) * 512 < 4 << 20


def test_the_configuration_file(tmp_path: Path) -> None:
    write_model(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    assert found["architectures"] == ["Qwen3_5ForConditionalGeneration"]
    assert found["vision_config"]["deepstack_visual_indexes"] == []
    assert found["text_config"]["full_attention_interval"] == 4
