# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package index of a few small wheels, made while a test runs."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OLD, NEW = "2026-10-01T00:00:00Z", "2026-11-15T00:00:00Z"


def metadata_of(name: str, version: str, requires: list[str], python: str | None = None) -> str:
    asked = f"Requires-Python: {python}\n" if python else ""
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}" + "".join(f"Requires-Dist: {line}\n" for line in requires)


def wheel(name: str, version: str, tag: str, metadata: str, content: Mapping[str, bytes]) -> tuple[str, bytes]:
    stem = f"{name.replace('-', '_')}-{version}"
    tags = "".join(f"Tag: {'-'.join(tag.split('-')[:2])}-{part}\n" for part in tag.split("-")[2].split("."))
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for file, text in (
            ("METADATA", metadata),
            ("WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n{tags}"),
            ("RECORD", ""),
        ):
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{file}"), text)
        for file, inside in content.items():
            archive.writestr(zipfile.ZipInfo(file), inside)
    return f"{stem}-{tag}.whl", body.getvalue()


class Index:
    """Simple API in JSON (PEP 691); `without` names fields of a file that the index keeps to itself.

    asked: every request as (path, range). answers: status and headers to give first, instead of an answer.
    """

    def __init__(self, without: frozenset[str] = frozenset(), ranges: bool = True) -> None:
        self.projects: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.without = without
        self.ranges = ranges
        self.asked: list[tuple[str, str | None]] = []
        self.authorizations: set[str | None] = set()
        self.answers: list[tuple[int, dict[str, str]]] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = self.path.strip("/").split("/")
                index.asked.append((parts[-1], self.headers["Range"]))
                index.authorizations.add(self.headers["Authorization"])
                if index.answers:
                    code, headers = index.answers.pop(0)
                    self.send_response(code)
                    for name, value in {**headers, "Content-Length": "0"}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    return
                if parts[0] == "files" and parts[-1] in index.files:
                    self.answer("application/octet-stream", index.files[parts[-1]])
                elif parts[0] == "simple" and parts[-1] in index.projects:
                    page = {"meta": {"api-version": "1.1"}, "name": parts[-1], "files": index.projects[parts[-1]]}
                    self.answer("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())
                else:
                    self.send_error(404)

            do_HEAD = do_GET

            def answer(self, kind: str, body: bytes) -> None:
                wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "") if index.ranges else None
                if wanted:
                    body = body[int(wanted[1]) : int(wanted[2]) + 1]
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple/"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def add(
        self,
        pin: str,
        requires: list[str] | None = None,
        tag: str = "py3-none-any",
        upload: str = OLD,
        sdist: bool = False,
        python: str | None = None,
        content: Mapping[str, bytes] | None = None,
        beside: bool = False,
        yanked: bool = False,
    ) -> None:
        """beside: the metadata can be had without the wheel (PEP 658)."""
        name, _equals, version = pin.partition("==")
        metadata = metadata_of(name, version, requires or [], python)
        if sdist:
            filename, body = f"{name}-{version}.tar.gz", b"no archive"
        else:
            filename, body = wheel(name, version, tag, metadata, content or {})
        self.files[filename] = body
        if beside:
            self.files[f"{filename}.metadata"] = metadata.encode()
        entry = {
            "filename": filename,
            "url": f"../../files/{filename}",
            "hashes": {"sha256": hashlib.sha256(body).hexdigest()},
            "size": len(body),
            "upload-time": upload,
            "yanked": yanked,
        }
        if beside:
            entry["core-metadata"] = {"sha256": hashlib.sha256(metadata.encode()).hexdigest()}
        self.projects.setdefault(name, []).append({key: value for key, value in entry.items() if key not in self.without})

    def __enter__(self) -> Index:
        self.thread.start()
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def stocked(without: frozenset[str] = frozenset()) -> Index:
    """What the reference plan needs, and beside it what a wrong question would find."""
    index = Index(without)
    index.add("sglang==0.5.23", ["torch==2.14.1", "sglang-kernel==0.4.10", "flashinfer-python[cu13]==0.7.2", "helper"])
    index.add("torch==2.14.1", tag="cp313-cp313-manylinux_2_28_x86_64")
    index.add("torch==2.14.1", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add("torch==2.14.1", tag="cp313-cp313-manylinux_2_28_aarch64")
    index.add("sglang-kernel==0.4.10", ["torch==2.14.1"], tag="cp310-abi3-manylinux2014_x86_64")
    index.add("flashinfer-python==0.7.2")
    index.add("helper==1.0", tag="py3-none-any")
    index.add("helper==1.0", tag="cp313-cp313-manylinux_2_34_x86_64.manylinux_2_17_x86_64")
    index.add("helper==2.0", upload=NEW)
    for part in ("cccl==13.0.85", "crt==13.0.88", "nvcc==13.0.88", "nvrtc==13.0.88", "runtime==13.0.96", "nvcc==13.4.92"):
        index.add(f"nvidia-cuda-{part}", ["a-dependency-that-nobody-serves"], tag="py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64")
    index.add("nvidia-nvvm==13.0.88", tag="py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64")
    return index
