"""Downloads over HTTP(S): progress, retries, checksums, proxies, own certificates, credentials in the address."""

import base64
import hashlib
import http.client
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from dev.bootstrap.report import Problem, Step, megabytes

T = TypeVar("T")

ATTEMPTS = 3
TIMEOUT = 60
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class FetchError(Problem):
    """A download failed for good."""


@dataclass(frozen=True)
class Page:
    """A small text document and the address it finally came from."""

    url: str
    content_type: str
    text: str


def page(url: str, accept: str = "*/*") -> Page:
    """Fetch a small text document."""

    def read(response: http.client.HTTPResponse) -> Page:
        charset = response.headers.get_content_charset() or "utf-8"
        return Page(response.url, response.headers.get_content_type(), response.read().decode(charset))

    return _with_retries(url, {"Accept": accept}, read)


def download(url: str, target: Path, sha256: str, step: Step, name: str) -> int:
    """Fetch ``url`` into ``target`` unless that file is already there; returns the bytes fetched now.

    The file appears under its name only when it is complete and its checksum is right.
    """
    if target.exists() and checksum(target) == sha256:
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        size = _with_retries(url, {}, lambda response: _save(response, part, step, name))
        found = checksum(part)
        if found != sha256:
            raise FetchError(f"{name}: {public(url)} has the sha256 {found}, expected {sha256}. Nothing was installed.")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return size


def checksum(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def public(url: str) -> str:
    """The address without user name, password and query, fit for printing."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _save(response: http.client.HTTPResponse, target: Path, step: Step, what: str) -> int:
    total = int(response.headers.get("Content-Length") or 0)
    size = 0
    with target.open("wb") as file:
        while block := response.read(1 << 18):
            file.write(block)
            size += len(block)
            step.progress(f"{what}: {megabytes(size)}" + (f" of {megabytes(total)}" if total else ""))
    if total and size != total:
        raise ConnectionError(f"the connection ended after {size} of {total} bytes")
    return size


def _with_retries(url: str, headers: dict[str, str], read: Callable[[http.client.HTTPResponse], T]) -> T:
    request = _request(url, headers)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _opener().open(request, timeout=TIMEOUT) as response:
                return read(response)
        except (OSError, http.client.HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 429)
            if final or attempt == ATTEMPTS:
                raise FetchError(f"cannot fetch {public(url)}: {error}") from error
            time.sleep(attempt)
    raise AssertionError("unreachable")


def _request(url: str, headers: dict[str, str]) -> urllib.request.Request:
    """A request whose credentials, if the address carries any, are in the header where they belong."""
    parts = urllib.parse.urlsplit(url)
    credentials, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(
        parts._replace(netloc=host).geturl(), headers={"User-Agent": "cdc-dev-setup", **headers}
    )
    if credentials:
        encoded = base64.b64encode(urllib.parse.unquote(credentials).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    return request


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Knows the proxies of the environment (urllib does) and trusts the certificates named there as well."""
    context = ssl.create_default_context()
    for name in CERTIFICATE_VARIABLES:
        path = os.environ.get(name)
        if path and Path(path).is_file():
            context.load_verify_locations(path)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
