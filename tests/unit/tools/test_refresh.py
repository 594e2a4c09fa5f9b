# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tools/refresh_knowledge against an index on this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge, _schema
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import fat_elf

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/unit/plugins/plugin_utils")]
import index as served
from refresh import __main__ as refresh
from refresh import measure, tables
from refresh.client import Client, RefreshError, configured

X86, ARM = "manylinux_2_34_x86_64", "manylinux_2_34_aarch64"
KERNEL = "sgl_kernel/sm{}/common_ops.abi3.so"


def kernel_content(*archs: str) -> dict[str, bytes]:
    return {
        KERNEL.format(90): fat_elf(("sm_90a", *archs), ("sm_80", *archs)),
        KERNEL.format(100): fat_elf((*archs, "sm_100f")),
        "sgl_kernel/flash_ops.abi3.so": fat_elf(("sm_90a",)),
    }


@pytest.fixture
def index() -> Iterator[served.Index]:
    with stocked(served.Index()) as made:
        yield made


def stocked(index: served.Index) -> served.Index:
    """A release that the knowledge base does not know, with all that it pins, and some that must not be taken."""
    needs = ['torch==2.15.0; platform_system == "Linux"', "sglang-kernel==0.5.0", "flashinfer_python[cu13]==0.8.0", "numpy"]
    needs += ["torch==1.0; extra == 'old'", "flashinfer_python==0.1; platform_machine == 'riscv64'"]
    for tag in ("cp313-cp313", "cp312-cp312"):
        index.add("sglang==0.6.0", needs, f"{tag}-{X86}", "2026-11-20T10:00:01.25Z", python=">=3.12")
    index.add("sglang==0.6.0", needs, f"cp313-cp313-{ARM}", "2026-11-21T08:00:00Z", python=">=3.12")
    index.add("sglang==0.6.0", sdist=True)
    index.add("sglang==0.6.1rc1", needs)
    index.add("sglang==0.6.2", needs, yanked=True)
    for machine, archs in (("x86_64", ("sm_120a", "sm_90")), ("aarch64", ("sm_121a", "compute_121"))):
        index.add("sglang-kernel==0.5.0", ["torch==2.15.0"], f"cp310-abi3-manylinux2014_{machine}", content=kernel_content(*archs))
    cuda = ["cuda-toolkit[cublas]==13.1.2; platform_machine == 'x86_64'", "nvidia-nccl-cu13==2.31.0; platform_machine == 'x86_64'"]
    library = {"torch/lib/libtorch_cuda.so": fat_elf(("sm_90", "sm_120"), ("sm_90", "sm_103f", "sm_120"))}
    for tag in ("cp312-cp312", "cp313-cp313", "cp314-cp314t"):
        index.add("torch==2.15.0", cuda, f"{tag}-manylinux_2_28_x86_64", content=library)
        index.add("torch==2.15.0", cuda, f"{tag}-manylinux_2_28_aarch64")
    return index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_knowledge.FOLDER, tmp_path / "knowledge"))


@pytest.fixture
def run(index: served.Index, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*more: str, cache: str = "cache") -> tuple[int, str, str]:
        index.asked.clear()
        code = refresh.main(["0.6.0", "--folder", str(folder), "--cache", str(tmp_path / cache), *more], {"UV_DEFAULT_INDEX": index.url})
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def whole_wheels(index: served.Index) -> list[str]:
    return [name for name, part in index.asked if name.endswith(".whl") and part is None]


def test_a_new_release_is_proposed_with_all_that_it_pins(run: Any, index: served.Index, folder: Path) -> None:
    code, diff, err = run()
    assert code == refresh.DIFFERENT and "New: 0.6.0" in err and "docs/knowledge.md" in err
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    hashes = {name: hashlib.sha256(body).hexdigest() for name, body in index.files.items()}
    assert [line for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")] == []
    assert added == [
        '  "0.6.0":',
        '    upload: "2026-11-21T08:00:00Z"',
        '    requires_python: ">=3.12"',
        '    wheels: {pythons: ["3.12", "3.13"], machines: [x86_64, aarch64], glibc: "2.34"}',
        '    pins: {torch: "2.15.0", kernel: {name: sglang-kernel, version: "0.5.0"}, flashinfer: "0.8.0"}',
        '    "0.5.0": {python: "3.10", machines: [x86_64, aarch64], glibc: "2.17", torch: "2.15.0"}',
        '  "2.15.0":',
        "    cuda_major: 13",
        '    cuda: "13.1"',
        "    build: {x86_64: cu131, aarch64: cpu}",
        '    pythons: ["3.12", "3.13"]',
        '    glibc: "2.28"',
        '    nccl: "2.31.0"',
        '    "0.5.0":',
        '      x86_64: {cuda_major: 13, runs: ["90", "120a"],',
        f'               sha256: "{hashes["sglang_kernel-0.5.0-cp310-abi3-manylinux2014_x86_64.whl"]}"}}',
        '      aarch64: {cuda_major: 13, runs: ["121a"],',
        f'                sha256: "{hashes["sglang_kernel-0.5.0-cp310-abi3-manylinux2014_aarch64.whl"]}"}}',
        '    "2.15.0":',
        '      x86_64: {cuda_major: 13, runs: ["90", "120"],',
        f'               sha256: "{hashes["torch-2.15.0-cp313-cp313-manylinux_2_28_x86_64.whl"]}"}}',
    ]
    assert _knowledge.read_tables(folder) == _knowledge.read_tables(), "nothing is written unasked"


def test_what_was_written_is_sound_and_a_second_run_asks_for_no_wheel(run: Any, index: served.Index, folder: Path, tmp_path: Path) -> None:
    code, diff, _err = run("--write")
    assert code == refresh.SAME and diff
    assert _knowledge.build(_knowledge.read_tables(folder)).newest_first[0] == "0.6.0"
    assert len(whole_wheels(index)) == 3 and list((tmp_path / "cache/wheels").iterdir()) == []
    code, diff, err = run(cache="an empty one")
    assert (code, diff) == (refresh.SAME, "") and "New" not in err
    assert whole_wheels(index) == []


def test_a_wheel_that_was_scanned_before_is_not_fetched_again(run: Any, index: served.Index) -> None:
    _code, first, _err = run()
    code, diff, _err = run()
    assert code == refresh.DIFFERENT and diff == first and whole_wheels(index) == []
    assert [name for name, _part in index.asked] == ["sglang", "sglang-kernel", "torch"], "a page once, and no metadata again"


def test_another_wheel_under_the_same_name_is_measured_again(run: Any, index: served.Index) -> None:
    run("--write")
    index.projects["sglang-kernel"] = [entry for entry in index.projects["sglang-kernel"] if "aarch64" in entry["filename"]]
    index.add("sglang-kernel==0.5.0", ["torch==2.15.0"], "cp310-abi3-manylinux2014_x86_64", content=kernel_content("sm_120f"))
    code, diff, _err = run()
    assert code == refresh.DIFFERENT and whole_wheels(index) == ["sglang_kernel-0.5.0-cp310-abi3-manylinux2014_x86_64.whl"]
    assert '-      x86_64: {cuda_major: 13, runs: ["90", "120a"],' in diff and '+      x86_64: {cuda_major: 13, runs: ["120f"],' in diff


def test_metadata_alone(run: Any, index: served.Index) -> None:
    code, diff, _err = run("--metadata-only")
    assert code == refresh.DIFFERENT and '"0.6.0"' in diff and "cuda_major: 13, runs" not in diff
    assert whole_wheels(index) == []


def test_the_newest_final_release_is_taken_when_none_is_named(index: served.Index, folder: Path, tmp_path: Path) -> None:
    client = Client(index.url, tmp_path, 0)
    assert measure.newest(measure.wheels(client, "sglang"), 5) == ["0.6.0"]


def test_metadata_beside_a_wheel_is_taken_when_there_is_one(index: served.Index, tmp_path: Path) -> None:
    index.add("sglang==0.7.0", ["torch==2.15.0"], beside=True)
    client = Client(index.url, tmp_path, 0)
    wheel = measure.of_version(measure.wheels(client, "sglang"), "0.7.0")[0]
    assert measure.pins(client.metadata(wheel.file)) == {"torch": "2.15.0"}
    assert [name for name, _part in index.asked] == ["sglang", f"{wheel.file.name}.metadata"]
    index.files[f"{wheel.file.name}.metadata"] += b"\nRequires-Dist: evil==1\n"
    with pytest.raises(RefreshError, match="another hash"):
        Client(index.url, tmp_path / "other", 0).metadata(wheel.file)


CONFIGURED: list[tuple[dict[str, str], str | None, str]] = [
    ({"UV_DEFAULT_INDEX": "https://a/simple", "PIP_INDEX_URL": "https://c"}, "https://d", "https://a/simple"),
    ({"UV_DEFAULT_INDEX": "mine=https://a/simple"}, None, "https://a/simple"),
    ({"UV_DEFAULT_INDEX": "https://a/simple?x=y"}, None, "https://a/simple?x=y"),
    ({"UV_INDEX_URL": "https://b", "PIP_INDEX_URL": "https://c"}, "https://d", "https://b"),
    ({"PIP_INDEX_URL": "https://c"}, "https://d", "https://c"),
    ({}, "https://d", "https://d"),
    ({}, None, "https://pypi.org/simple"),
]


@pytest.mark.parametrize(("environ", "pip", "wanted"), CONFIGURED)
def test_the_index_is_the_one_of_uv_and_pip(environ: dict[str, str], pip: str | None, wanted: str) -> None:
    assert configured(environ, lambda: pip) == wanted


def test_pips_own_configuration_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://index.example.com/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert configured({}) == "https://index.example.com/simple"


def failing(index: served.Index, tmp_path: Path, **options: Any) -> Client:
    return Client(index.url, tmp_path / "cache", options.pop("most", 1 << 30), **options)


def test_a_busy_index_is_asked_again_when_it_says(index: served.Index, tmp_path: Path) -> None:
    waited: list[float] = []
    index.answers = [(503, {"Retry-After": "7"}), (429, {"Retry-After": "900"}), (502, {})]
    client = failing(index, tmp_path, sleep=waited.append)
    assert client.project("torch") and waited == [7, 60, 4]
    assert client.requests == 4
    index.answers = [(503, {})] * 4
    with pytest.raises(RefreshError, match=r"answers 503 .* /simple/sglang/"):
        client.project("sglang")


def test_what_is_not_there_is_not_asked_for_again(index: served.Index, tmp_path: Path) -> None:
    with pytest.raises(RefreshError, match=r"answers 404"):
        failing(index, tmp_path, sleep=pytest.fail).project("no-such-project")


def test_an_index_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with served.Index() as gone:
        url = gone.url
    with pytest.raises(RefreshError, match=r"cannot be reached.*UV_DEFAULT_INDEX"):
        Client(url, tmp_path, 0, sleep=lambda seconds: None).project("sglang")


@pytest.mark.parametrize("without", ["upload-time", "hashes", "size"])
def test_an_index_that_says_too_little(tmp_path: Path, without: str) -> None:
    with stocked(served.Index(frozenset({without}))) as index, pytest.raises(RefreshError, match="PEP 691 and 700"):
        Client(index.url, tmp_path, 0).project("sglang")


def test_an_index_without_ranges_and_metadata_sends_no_whole_wheel(tmp_path: Path) -> None:
    with stocked(served.Index(ranges=False)) as index:
        client = Client(index.url, tmp_path, 0)
        wheel = measure.wheels(client, "torch")[0]
        with pytest.raises(RefreshError, match="neither metadata beside"):
            client.metadata(wheel.file)


def test_name_and_password_go_to_the_index_alone_and_into_no_message(index: served.Index, tmp_path: Path) -> None:
    secret = index.url.replace("http://", "http://me:s%40cret@")
    with served.Index() as elsewhere:
        elsewhere.add("torch==2.15.0", tag="cp313-cp313-manylinux_2_28_x86_64")
        client = Client(secret, tmp_path, 1 << 30)
        client.project("torch")
        assert index.authorizations == {"Basic bWU6c0BjcmV0"}
        index.answers = [(302, {"Location": f"{elsewhere.url}torch/"})]
        Client(secret, tmp_path, 0).project("sglang")
        assert elsewhere.authorizations == {None}
    index.answers = [(403, {})]
    with pytest.raises(RefreshError) as raised:
        Client(secret, tmp_path, 0).project("sglang")
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://index.example.com/simple", "file:///etc", "ftp://index.example.com", "index"])
def test_an_index_whose_answers_could_be_altered_is_refused(url: str, tmp_path: Path, index: served.Index) -> None:
    with pytest.raises(RefreshError, match="wanted: https"):
        Client(url, tmp_path, 0)
    index.answers = [(302, {"Location": url})]
    with pytest.raises(RefreshError, match=r"wanted: https|answers 302|404"):
        Client(index.url, tmp_path, 0).project("sglang")


def test_a_wheel_beyond_the_limit_is_not_fetched(run: Any, index: served.Index) -> None:
    code, diff, err = run("--most-mib", "0")
    assert (code, diff) == (refresh.FAILED, "") and "--most-mib" in err and whole_wheels(index) == []


def test_a_wheel_with_another_hash_is_refused_and_removed(run: Any, index: served.Index, tmp_path: Path) -> None:
    name = "sglang_kernel-0.5.0-cp310-abi3-manylinux2014_x86_64.whl"
    index.files[name] += b"x"
    code, _diff, err = run()
    assert code == refresh.FAILED and "another hash" in err
    assert not (tmp_path / "cache/wheels" / name).exists()


CONTENTS: list[tuple[dict[str, bytes], str]] = [
    ({}, "no GPU code that links no CUDA library"),
    ({KERNEL.format(90): fat_elf(("sm_90",), needed=())}, "GPU code that links no CUDA library"),
    ({KERNEL.format(90): fat_elf(("sm_90",)), KERNEL.format(100): fat_elf(("sm_90",), needed=("libcudart.so.12",))}, "CUDA 12 and 13"),
    ({KERNEL.format(90): b"a text"}, "it is no ELF file"),
    ({KERNEL.format(90): fat_elf(("sm_90",))[:200]}, "cannot be read"),
]


@pytest.mark.parametrize(("content", "words"), CONTENTS)
def test_a_wheel_that_cannot_be_understood_is_named(run: Any, index: served.Index, content: dict[str, bytes], words: str) -> None:
    index.projects["sglang-kernel"] = []
    index.add("sglang-kernel==0.5.0", tag="cp310-abi3-manylinux2014_x86_64", content=content)
    code, _diff, err = run()
    assert code == refresh.FAILED and words in err and "sglang_kernel-0.5.0" in err


LACKING: list[tuple[str, list[str], str]] = [
    ("sglang", ["torch==2.15.0", "flashinfer-python==0.8.0"], "pins none of sglang-kernel, sgl-kernel"),
    ("sglang", ["torch>=2.15.0", "sglang-kernel==0.5.0", "flashinfer-python==0.8.0"], "pins none of torch"),
    ("torch", [], "torch 2.15.0 on the index is not built with CUDA"),
]


@pytest.mark.parametrize(("project", "requires", "words"), LACKING)
def test_metadata_that_the_tables_cannot_hold_is_named(
    run: Any, index: served.Index, project: str, requires: list[str], words: str
) -> None:
    index.projects[project] = []
    version = {"sglang": "0.6.0", "torch": "2.15.0"}[project]
    index.add(f"{project}=={version}", requires, f"cp313-cp313-{X86}")
    code, _diff, err = run()
    assert code == refresh.FAILED and words in err


def test_a_version_that_the_index_does_not_have(run: Any, index: served.Index) -> None:
    index.projects["sglang"] = index.projects["sglang"][-1:]
    code, _diff, err = run()
    assert code == refresh.FAILED and "no wheel of sglang 0.6.0" in err


def test_a_pure_release_is_any(index: served.Index, tmp_path: Path) -> None:
    index.add("sglang==0.7.0", ["torch==2.15.0", "sgl-kernel==0.3", "flashinfer-python==0.8.0"], python=">=3.10")
    client = Client(index.url, tmp_path, 0)
    row = measure.release_row(client, measure.wheels(client, "sglang"), "0.7.0")
    assert row["wheels"] == "any" and row["pins"]["kernel"] == {"name": "sgl-kernel", "version": "0.3"}


def test_every_row_of_the_shipped_tables_is_reproduced_to_the_letter() -> None:
    """Each row is taken out of its file and put in again; so what is proposed looks like what is there."""
    known = _knowledge.read_tables()
    texts = {name: (_knowledge.FOLDER / _schema.FILES[name]).read_text() for name in ("releases", "kernels", "torch", "code")}
    found: dict[str, dict[tuple[str, ...], Any]] = {
        "releases": {(name,): row for name, row in known["releases"].items()},
        "torch": {(name,): row for name, row in known["torch"].items()},
        "kernels": {(package, name): row for package, rows in known["kernels"].items() for name, row in rows.items()},
        "code": {(package, name): row for package, rows in known["code"].items() for name, row in rows.items()},
    }
    assert refresh.proposals(texts, known, found) == texts
    for table, rows in found.items():
        for key, row in rows.items():
            lacking = json.loads(json.dumps(known))
            text = texts[table].splitlines()
            low, high = 0, len(text)
            if len(key) == 2:
                low, high = next((start + 1, end) for name, start, end in tables._blocks(text, 2) if name == key[0])
            blocks = tables._blocks(text[low:high], 2 * len(key))
            start, end = next((low + start, low + end) for name, start, end in blocks if name == key[-1])
            del (lacking[table] if len(key) == 1 else lacking[table][key[0]])[key[-1]]
            without = "\n".join(text[:start] + text[end:]) + "\n"
            assert refresh.proposals({table: without}, lacking, {table: {key: row}})[table] == texts[table], key


PLACES: list[tuple[str, str, str | None, str]] = [
    ('t:\n  # first\n  "1.0":\n    a: 1\n', "0.9", None, 't:\n  # first\n  "0.9": new\n  "1.0":\n    a: 1\n'),
    ('t:\n  "1.0":\n    a: 1\n', "1.1", None, 't:\n  "1.0":\n    a: 1\n  "1.1": new\n'),
    ('t:\n  "1.9":\n    a: 1\n  "1.11":\n    a: 1\n', "1.10", None, 't:\n  "1.9":\n    a: 1\n  "1.10": new\n  "1.11":\n    a: 1\n'),
    ('t:\n  "1.0":\n    a: 1\n  "1.1":\n    a: 2\n', "1.0", None, 't:\n  "1.0": new\n  "1.1":\n    a: 2\n'),
    ('t:\n  p:\n    "1.0": {}\n  q:\n    "1.0": {}\n', "1.1", "p", 't:\n  p:\n    "1.0": {}\n  "1.1": new\n  q:\n    "1.0": {}\n'),
    ('t:\n  p:\n    "1.0": {a: 1}\n', "1.1", "r", 't:\n  p:\n    "1.0": {a: 1}\n  r:\n  "1.1": new\n'),
]


@pytest.mark.parametrize(("before", "version", "package", "after"), PLACES)
def test_a_row_stands_in_the_order_of_versions(before: str, version: str, package: str | None, after: str) -> None:
    assert tables.put(before, version, [f'  "{version}": new'], package) == after
