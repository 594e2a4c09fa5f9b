# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download of files known by their sha256, from a package index (PEP 691) or from an address.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import threading
import urllib.error
import urllib.parse
from typing import Any, Callable, NoReturn

from ansible.module_utils.urls import open_url
from ansible_collections.blackwell.inference.plugins.module_utils._durable import CHUNK, sync_folder
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.module_utils._wheelhouse import PARTIAL, Wanted

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
PAGE_LIMIT = 64 << 20
# Worth another try: the server is busy or restarting. Anything else in 4xx stays as it is.
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})

Opener = Callable[[str, "dict[str, str]"], Any]


class _Again(Exception):
    """This attempt failed in a way that another one may not."""


def shown(url: str) -> str:
    """The address without a user's name and password, which must not reach a log."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def opener(timeout: float) -> Opener:
    """TLS is verified against the system's certificates; a stalled server ends in a time-out, not in a hang."""

    def open_one(url: str, headers: dict[str, str]) -> Any:
        # Not decompressed on the way: sizes, ranges and hashes are those of the stored file.
        return open_url(url, headers=headers, timeout=timeout, http_agent="blackwell.inference", decompress=False)

    return open_one


class Fetcher:
    """Fetches into one folder, several files at a time; every finished file is right, every unfinished one hidden."""

    def __init__(
        self,
        folder: str,
        open_one: Opener,
        sleep: Callable[[float], None],
        index_url: str | None = None,
        retries: int = 3,
        threads: int = 4,
    ) -> None:
        self.folder = folder
        self.open_one = open_one
        self.sleep = sleep
        self.index_url = index_url
        self.retries = retries
        self.threads = max(1, threads)
        self.stop = threading.Event()

    def fetch(self, wanted: list[Wanted], done: Callable[[Wanted, str], None]) -> None:
        """Fetch all or raise the first refusal; what arrived before is kept and told to `done`."""
        os.makedirs(os.path.join(self.folder, PARTIAL), mode=0o700, exist_ok=True)
        # Largest first: the longest download then does not start last.
        order = sorted(wanted, key=lambda one: -(one.size or 0))
        with concurrent.futures.ThreadPoolExecutor(max_workers=self.threads) as pool:
            tasks = {pool.submit(self.fetch_one, one): one for one in order}
            try:
                for task in concurrent.futures.as_completed(tasks):
                    done(tasks[task], task.result())
            except BaseException:
                self.stop.set()
                for task in tasks:
                    task.cancel()
                raise
        sync_folder(self.folder)

    def fetch_one(self, wanted: Wanted) -> str:
        part = os.path.join(self.folder, PARTIAL, wanted.sha256)
        url = wanted.url or self._retrying(wanted, lambda: self._address(wanted))
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise Refusal(f"The address of {wanted.filename}", shown(url), "an http or https address", "Correct the index or URL")
        self._retrying(wanted, lambda: self._download(wanted, url, part))
        path = os.path.join(self.folder, wanted.filename)
        os.chmod(part, 0o644)
        os.replace(part, path)
        return path

    def _retrying(self, wanted: Wanted, attempt: Callable[[], Any]) -> Any:
        for number in range(self.retries + 1):
            try:
                return attempt()
            except urllib.error.HTTPError as error:
                reason = f"the answer {error.code} {error.reason} from {shown(error.url or '')}"
                error.close()
                if error.code not in TRANSIENT:
                    break
            except (_Again, OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
                    raise
                reason = str(error) or type(error).__name__
            if number < self.retries:
                self.sleep(2.0**number)
        raise Refusal(
            f"Download of {wanted.filename}",
            f"{reason} (tried {number + 1} times)",
            f"{wanted.size if wanted.size is not None else 'all'} bytes with sha256 {wanted.sha256}",
            "Look at the server and the network, then run this again: what has arrived is kept and continued",
        )

    def _address(self, wanted: Wanted) -> str:
        if not self.index_url:
            raise Refusal(
                f"The file {wanted.filename}",
                "neither in the wheelhouse nor an index to fetch it from",
                "an index_url",
                "Set index_url, or copy the file into the wheelhouse",
            )
        page_url = f"{self.index_url.rstrip('/')}/{wanted.project}/"
        with contextlib.closing(self.open_one(page_url, {"Accept": JSON_TYPE})) as answer:
            text = answer.read(PAGE_LIMIT)
            base = answer.geturl()
        return find_url(text, wanted, base)

    def _download(self, wanted: Wanted, url: str, part: str) -> None:
        digest = hashlib.sha256()
        offset = _resume(part, wanted.size, digest)
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if offset == 0 or offset != wanted.size:
            try:
                answer = self.open_one(url, headers)
            except urllib.error.HTTPError as error:
                if error.code != 416:
                    raise
                error.close()
                os.unlink(part)
                raise _Again("a server that cannot continue the unfinished file") from None
            with contextlib.closing(answer):
                if offset and answer.status != 206:
                    digest, offset = hashlib.sha256(), 0
                received = self._receive(answer, part, offset, wanted, digest)
            if wanted.size is not None and received < wanted.size:
                raise _Again(f"{received} of {wanted.size} bytes, then the end (truncated)")
        if digest.hexdigest() == wanted.sha256:
            return
        os.unlink(part)
        if offset:
            raise _Again("a continued file whose hash is wrong")
        _wrong_hash(wanted, digest.hexdigest(), url)

    def _receive(self, answer: Any, part: str, offset: int, wanted: Wanted, digest: Any) -> int:
        announced = answer.headers.get("Content-Length")
        received = offset
        with open(part, "ab" if offset else "wb") as file:
            while chunk := answer.read(CHUNK):
                if self.stop.is_set():
                    raise Refusal(wanted.filename, "another download that failed", "all", "See the first failure")
                received += len(chunk)
                if wanted.size is not None and received > wanted.size:
                    # Endless answers must not fill the disk; one byte too many already proves another file.
                    digest.update(chunk)
                    break
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if announced is not None and announced.isdigit() and received - offset < int(announced):
            raise _Again(f"{received - offset} of the {announced} bytes that the server announced (truncated)")
        return received


def _resume(part: str, size: int | None, digest: Any) -> int:
    """Hash what an earlier run left of this file; without a known size there is no telling where it ends."""
    if not os.path.exists(part):
        return 0
    if size is None or os.path.getsize(part) > size:
        os.unlink(part)
        return 0
    with open(part, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return os.path.getsize(part)


def _wrong_hash(wanted: Wanted, found: str, url: str) -> NoReturn:
    raise Refusal(
        f"The file {wanted.filename} from {shown(url)}",
        f"sha256 {found}",
        f"sha256 {wanted.sha256}",
        "The download was removed. Find out whether the server or the lock is wrong; make the lock again only if you trust the new file",
        file=wanted.filename,
    )


def find_url(page: bytes, wanted: Wanted, base: str) -> str:
    """Where an index keeps the file with this hash."""
    try:
        files = json.loads(page)["files"]
        entries = [(str(f["filename"]), str(f["url"]), f.get("hashes") or {}) for f in files]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refusal(
            f"The index page {shown(base)}",
            f"{page[:40]!r}...",
            "a project page in JSON (PEP 691)",
            "Point index_url to the 'simple' address of an index that answers in JSON",
        ) from None
    same_name = ""
    for filename, url, hashes in entries:
        if isinstance(hashes, dict) and hashes.get("sha256") == wanted.sha256:
            return urllib.parse.urljoin(base, url)
        if filename == wanted.filename and isinstance(hashes, dict):
            same_name = f"{filename} with sha256 {hashes.get('sha256')}"
    raise Refusal(
        f"The index page {shown(base)}",
        same_name or f"{len(entries)} other files",
        f"{wanted.filename} with sha256 {wanted.sha256}",
        "The lock was made from another index: use that one, or make the lock again from this one",
        file=wanted.filename,
    )
