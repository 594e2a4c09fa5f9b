# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A polite client of a package index: one request at a time, nothing asked twice, metadata before wheels.

Reads the simple API as JSON (PEP 691) with upload times (PEP 700), and metadata beside the wheels (PEP 658) or, where the index has
none, from the end of the wheel by ranges. A whole wheel is compared with the index's hash.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

DEFAULT = "https://pypi.org/simple"
JSON = "application/vnd.pypi.simple.v1+json"
AGENT = "blackwell.inference refresh_knowledge"
TRIES = 4
MOST_WAIT = 60
CHUNK = 1 << 20
# What uv and pip read of the end of a wheel to find its list of files; a wheel with many needs more, and reads on.
WINDOW = 1 << 20


class RefreshError(RuntimeError):
    """The tables could not be measured; the message says what was found and what to do."""


@dataclass(frozen=True)
class File:
    name: str
    url: str
    sha256: str
    size: int
    upload: str
    # The hash of the metadata beside the wheel; None where the index has none.
    metadata: str | None


def pip_index() -> str | None:
    """From pip's own files. `pip config get` does not look into the one that PIP_CONFIG_FILE names; `list` does."""
    asked = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    found = re.findall(r"^global\.index-url='(.+)'$", done.stdout, re.MULTILINE)
    return found[-1] if found else None


def configured(environ: Mapping[str, str], pip: Callable[[], str | None] = pip_index) -> str:
    """The index that uv and pip would ask here."""
    # uv lets an index have a name before its address.
    given = re.sub(r"^[\w.-]+=", "", environ.get("UV_DEFAULT_INDEX", ""))
    return given or environ.get("UV_INDEX_URL") or environ.get("PIP_INDEX_URL") or pip() or DEFAULT


def _allowed(url: str) -> str:
    """Where answers cannot be altered on the way."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")):
        return url
    raise RefreshError(
        f"The package index is reached by {parts.scheme or 'no scheme'}; wanted: https (see UV_DEFAULT_INDEX and PIP_INDEX_URL)."
    )


def _without_credentials(url: str) -> tuple[str, str | None]:
    """The address without name and password, and the header that says them."""
    parts = urllib.parse.urlsplit(_allowed(url))
    plain = urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + "/", "", ""))
    if parts.username is None:
        return plain, None
    told = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return plain, "Basic " + base64.b64encode(told.encode()).decode()


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, answer: Any, code: Any, message: Any, headers: Any, url: str) -> Any:
        return super().redirect_request(request, answer, code, message, headers, _allowed(url))


class Client:
    """fetched counts the bytes of answers, so that a run can say what it cost."""

    def __init__(self, index: str, cache: Path, most_bytes: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self.index, self._authorization = _without_credentials(index)
        self._host = urllib.parse.urlsplit(self.index).netloc
        self._opener = urllib.request.build_opener(_Redirects)
        self._cache = cache
        self._left = most_bytes
        self._sleep = sleep
        self._projects: dict[str, list[File]] = {}
        self.fetched = 0
        self.requests = 0

    def _open(self, url: str, headers: Mapping[str, str]) -> Any:
        """One request, again after a while where the index asks for it or fails for the moment."""
        request = urllib.request.Request(_allowed(url), headers={"User-Agent": AGENT, **headers})
        if self._authorization and urllib.parse.urlsplit(url).netloc == self._host:
            # Not sent on to the host that a redirection names.
            request.add_unredirected_header("Authorization", self._authorization)
        for tried in range(TRIES):
            self.requests += 1
            try:
                return self._opener.open(request, timeout=120)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 500, 502, 503, 504) or tried == TRIES - 1:
                    raise RefreshError(
                        f"The package index answers {error.code} ({error.reason}) to {urllib.parse.urlsplit(url).path}."
                    ) from error
                wait = error.headers.get("Retry-After", "")
                self._sleep(min(int(wait) if wait.isdigit() else 2**tried, MOST_WAIT))
            except OSError as error:
                if tried == TRIES - 1:
                    reason = getattr(error, "reason", error)
                    raise RefreshError(
                        f"The package index cannot be reached: {reason}. Look at UV_DEFAULT_INDEX, PIP_INDEX_URL and the network."
                    ) from error
                self._sleep(2**tried)
        raise AssertionError("the loop returns or raises")

    def _read(self, url: str, headers: Mapping[str, str]) -> bytes:
        with self._open(url, headers) as answer:
            body: bytes = answer.read()
        self.fetched += len(body)
        return body

    def project(self, name: str) -> list[File]:
        """Every file of a project, one request for each project and run."""
        if name not in self._projects:
            url = f"{self.index}{name}/"
            body = self._read(url, {"Accept": JSON})
            try:
                page = json.loads(body)
                self._projects[name] = [_file(url, entry) for entry in page["files"] if not entry.get("yanked")]
            except (ValueError, KeyError, TypeError) as error:
                raise RefreshError(
                    f"The package index's page of {name} cannot be used ({error!r}); wanted: the simple API as JSON with upload times "
                    "(PEP 691 and 700). Name another index."
                ) from error
        return self._projects[name]

    def metadata(self, file: File) -> str:
        """A wheel's METADATA, without the wheel."""
        kept = self._cache / "metadata" / file.sha256
        if not kept.exists():
            body = self._metadata_beside(file) if file.metadata else self._metadata_inside(file)
            _keep(kept, body)
        return kept.read_text(encoding="utf-8")

    def _metadata_beside(self, file: File) -> bytes:
        body = self._read(f"{file.url}.metadata", {})
        if hashlib.sha256(body).hexdigest() != file.metadata:
            raise RefreshError(
                f"The metadata of {file.name} has another hash than the index says. Ask again; if it stays so, ask the index."
            )
        return body

    def _metadata_inside(self, file: File) -> bytes:
        try:
            with zipfile.ZipFile(io.BufferedReader(_Ranges(self, file), WINDOW)) as archive:
                name = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
                return archive.read(name)
        except (zipfile.BadZipFile, StopIteration) as error:
            raise RefreshError(f"{file.name} is no wheel that can be read: {error}.") from error

    def part(self, file: File, start: int, end: int) -> bytes:
        """Bytes of a file by range; an index that knows no ranges would send all of it, which is not taken."""
        with self._open(file.url, {"Range": f"bytes={start}-{end - 1}"}) as answer:
            if answer.status != 206:
                raise RefreshError(f"The index has neither metadata beside {file.name} nor ranges. Name an index that has one of them.")
            body: bytes = answer.read()
        self.fetched += len(body)
        return body

    def wheel(self, file: File) -> Path:
        """The whole wheel, compared with the index's hash. The caller removes it."""
        if file.size > self._left:
            raise RefreshError(
                f"{file.name} has {file.size >> 20} MiB, and {self._left >> 20} MiB of this run's limit are left. "
                "Run again with a larger --most-mib."
            )
        self._left -= file.size
        path = self._cache / "wheels" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with self._open(file.url, {}) as answer, path.open("wb") as out:
            while body := answer.read(CHUNK):
                digest.update(body)
                out.write(body)
                self.fetched += len(body)
        if digest.hexdigest() != file.sha256:
            path.unlink()
            raise RefreshError(f"{file.name} has another hash than the index says: it was cut short or altered on the way. Run again.")
        return path

    def kept(self, file: File) -> dict[str, Any] | None:
        """What an earlier run measured in exactly this wheel."""
        try:
            return cast("dict[str, Any]", json.loads((self._cache / "code" / file.sha256).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def keep(self, file: File, code: Mapping[str, Any]) -> None:
        _keep(self._cache / "code" / file.sha256, json.dumps(code).encode())


def _keep(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(body)
    os.replace(new, path)


def _file(page: str, entry: Mapping[str, Any]) -> File:
    beside = entry.get("core-metadata", entry.get("data-dist-info-metadata"))
    return File(
        name=entry["filename"],
        url=urllib.parse.urljoin(page, entry["url"]),
        sha256=entry["hashes"]["sha256"],
        size=entry["size"],
        upload=entry["upload-time"],
        metadata=beside.get("sha256") if isinstance(beside, Mapping) else None,
    )


class _Ranges(io.RawIOBase):
    """A file on the index as one that can be read at any place."""

    def __init__(self, client: Client, file: File) -> None:
        self._client = client
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size)
        if end <= self._at:
            return 0
        body = self._client.part(self._file, self._at, end)
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)
