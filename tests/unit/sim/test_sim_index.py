# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.catalog import Catalog, entry_of_built, normalise
from sim.index import JSON_TYPE, IndexServer, parse_range
from sim.releases import Wheel
from sim.wheels import metadata, write_wheel

OLD = Wheel("lab-thing", "1.0", "py3-none-any", "2026-01-01T00:00:00Z", ">=3.9", "lab_thing")
NEW = replace(OLD, version="2.0", upload_time="2026-06-01T00:00:00Z", requires=("lab-part==3.0",))
PART = Wheel("lab-part", "3.0", "py3-none-any", "2025-01-01T00:00:00Z", ">=3.9", "lab_part")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IndexServer]:
    catalog = Catalog()
    for name in ("files", "wrong", "driver"):
        (tmp_path / name).mkdir()
    for wheel in (OLD, NEW, PART):
        write_wheel(wheel, {f"{wheel.package}/__init__.py": b"good = True\n"}, tmp_path / "files")
        catalog.add(entry_of_built(wheel, tmp_path, "files"))
    write_wheel(NEW, {"lab_thing/__init__.py": b"good = False\n"}, tmp_path / "wrong")
    catalog.replace_in_wrong_channel(entry_of_built(NEW, tmp_path, "wrong"))
    (tmp_path / "driver" / "x.run").write_bytes(bytes(range(100)))
    (tmp_path / "catalog.json").write_text(json.dumps(catalog.as_json()), encoding="utf-8")
    running = IndexServer(tmp_path, "127.0.0.1", 0, quiet=True)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def get(server: IndexServer, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def project(server: IndexServer, path: str) -> dict[str, dict[str, object]]:
    response, body = get(server, path, Accept=JSON_TYPE)
    assert (response.status, response.headers["Content-Type"]) == (200, JSON_TYPE)
    return {item["filename"]: item for item in json.loads(body)["files"]}


def test_the_list_of_projects(server: IndexServer) -> None:
    _, body = get(server, "/simple/", Accept=JSON_TYPE)
    assert json.loads(body)["projects"] == [{"name": "lab-part"}, {"name": "lab-thing"}]


def test_a_project_names_what_locking_needs(server: IndexServer) -> None:
    item = project(server, "/simple/Lab_Thing/")[NEW.filename]
    assert item["upload-time"] == "2026-06-01T00:00:00Z"
    assert item["requires-python"] == ">=3.9"
    path = server.built / "files" / NEW.filename
    assert item["size"] == path.stat().st_size
    response, body = get(server, str(item["url"]))
    assert response.status == 200
    assert body == path.read_bytes()
    _, body = get(server, f"{item['url']}.metadata")
    assert body == metadata(NEW).encode()


def test_html_for_who_does_not_ask_for_json(server: IndexServer) -> None:
    response, body = get(server, "/simple/lab-thing/")
    assert response.headers["Content-Type"].startswith("text/html")
    assert f"/files/{NEW.filename}#sha256=" in body.decode()
    assert 'data-requires-python="&gt;=3.9"' in body.decode()


def test_the_wrong_channel_differs_in_one_file(server: IndexServer) -> None:
    right, wrong = project(server, "/simple/lab-thing/"), project(server, "/wrong/simple/lab-thing/")
    assert right.keys() == wrong.keys()
    assert right[OLD.filename] == wrong[OLD.filename]
    assert right[NEW.filename]["hashes"] != wrong[NEW.filename]["hashes"]
    _, body = get(server, str(wrong[NEW.filename]["url"]))
    assert body == (server.built / "wrong" / NEW.filename).read_bytes()


@pytest.mark.parametrize(
    "path",
    ["/", "/simple/absent/", "/files/absent.whl", "/files/../catalog.json", "/files/%2e%2e/catalog.json",
     "/catalog.json", "/files/absent.whl.metadata", "/simple/lab-thing/more"],
)  # fmt: skip
def test_what_is_not_there_is_404(server: IndexServer, path: str) -> None:
    response, _ = get(server, path)
    assert response.status == 404


@pytest.mark.parametrize(
    ("header", "first", "last"),
    [("bytes=10-19", 10, 19), ("bytes=90-", 90, 99), ("bytes=-5", 95, 99), ("bytes=95-1000", 95, 99)],
)
def test_ranges(server: IndexServer, header: str, first: int, last: int) -> None:
    response, body = get(server, "/driver/x.run", Range=header)
    assert (response.status, response.headers["Content-Range"]) == (206, f"bytes {first}-{last}/100")
    assert body == bytes(range(first, last + 1))


def test_a_range_outside_the_file(server: IndexServer) -> None:
    response, _ = get(server, "/driver/x.run", Range="bytes=100-")
    assert (response.status, response.headers["Content-Range"]) == (416, "bytes */100")


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,4}-\d{0,4}", fullmatch=True), st.integers(0, 5000))
def test_no_range_header_reaches_outside_the_file(header: str, size: int) -> None:
    try:
        part = parse_range(header, size)
    except ValueError:
        return
    assert part is None or 0 <= part[0] <= part[1] < size


@pytest.mark.parametrize(("name", "expected"), [("Lab_Thing", "lab-thing"), ("a.-_b", "a-b"), ("torch", "torch")])
def test_normalise(name: str, expected: str) -> None:
    assert normalise(name) == expected


@pytest.mark.parametrize(("day", "expected"), [("2026-07-01", "2.0"), ("2026-05-01", "1.0")])
def test_uv_locks_as_of_a_day(server: IndexServer, tmp_path: Path, day: str, expected: str) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert uv, "uv is part of the development environment"
    (tmp_path / "in.txt").write_text("lab-thing\n", encoding="ascii")
    url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    command = [uv, "pip", "compile", "in.txt", "--index-url", url, "--exclude-newer", day, "--generate-hashes"]
    command += ["--no-build", "--no-cache", "--no-config", "--no-python-downloads", "--no-header", "--quiet"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"lab-thing=={expected}" in result.stdout
    assert ("lab-part==3.0" in result.stdout) == (expected == "2.0")
