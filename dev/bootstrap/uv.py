"""Finds uv, or fetches the pinned one from a Python package index. A wheel is a zip with the static binary inside."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.parse
import zipfile
from html.parser import HTMLParser
from pathlib import Path

from dev import paths
from dev.bootstrap import fetch
from dev.bootstrap.report import Problem, Step

VERSION = "0.13.8"
PYPI = "https://pypi.org/simple"
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")


def index_url() -> str:
    """The package index that this machine is configured to use."""
    for name in INDEX_VARIABLES:
        if value := os.environ.get(name, "").strip():
            return value.rpartition("=")[2] if re.match(r"[\w-]+=https?:", value) else value
    return PYPI


def ensure(step: Step) -> Path:
    """The path of a uv that is new enough."""
    if found := shutil.which("uv"):
        version = _version(found)
        if version and version[:2] >= _numbers(VERSION)[:2]:
            step.done(f"{'.'.join(map(str, version))} on PATH")
            return Path(found)
    binary = paths.TOOLS / f"uv-{VERSION}" / "uv"
    if binary.exists():
        step.done(VERSION)
        return binary
    size = _fetch(binary, step)
    step.done(f"{VERSION}, {size / 1e6:.0f} MB")
    return binary


def _version(binary: str) -> tuple[int, ...] | None:
    try:
        output = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"uv (\d+\.\d+\.\d+)", output)
    return _numbers(match[1]) if match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _fetch(binary: Path, step: Step) -> int:
    project = f"{index_url().rstrip('/')}/uv/"
    step.progress(f"asking {fetch.public(project)}")
    url, sha256 = _choose(_links(project))
    wheel = binary.parent / "uv.whl"
    size = fetch.download(_with_credentials(url, project), wheel, sha256, step, f"uv {VERSION}")
    with zipfile.ZipFile(wheel) as archive, archive.open(f"uv-{VERSION}.data/scripts/uv") as source:
        part = binary.with_suffix(".part")
        with part.open("wb") as target:
            shutil.copyfileobj(source, target)
    part.chmod(0o755)
    part.replace(binary)
    wheel.unlink()
    return size


def _links(project: str) -> dict[str, tuple[str, str]]:
    """File name -> (address, sha256) of a project page, in the JSON or the HTML form of the simple index."""
    page = fetch.page(project, accept="application/vnd.pypi.simple.v1+json, text/html;q=0.5")
    if page.content_type.endswith("json"):
        files = json.loads(page.text)["files"]
        return {
            file["filename"]: (urllib.parse.urljoin(page.url, file["url"]), file["hashes"].get("sha256", ""))
            for file in files
        }
    parser = _Anchors()
    parser.feed(page.text)
    links = {}
    for href in parser.links:
        url, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(page.url, href))
        name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        links[name] = (url, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "")
    return links


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a" and (href := dict(attrs).get("href")):
            self.links.append(href)


def _choose(links: dict[str, tuple[str, str]]) -> tuple[str, str]:
    prefix = f"uv-{VERSION}-py3-none-"
    matching = [
        name
        for name in links
        if name.startswith(prefix) and _fits_machine(name.removeprefix(prefix).removesuffix(".whl"))
    ]
    if not matching:
        raise Problem(
            f"The package index {fetch.public(index_url())} has no uv {VERSION} for this platform "
            f"({sys.platform} {platform.machine()}).\n"
            "Install uv yourself (https://docs.astral.sh/uv/) and run dev/setup again."
        )
    url, sha256 = links[min(matching)]
    if not sha256:
        raise Problem(
            f"The package index {fetch.public(index_url())} publishes no sha256 for uv.\n"
            "Install uv yourself (https://docs.astral.sh/uv/) and run dev/setup again."
        )
    return url, sha256


def _fits_machine(tags: str) -> bool:
    """Check whether a wheel's platform tags are for this machine."""
    machine = platform.machine().lower()
    if sys.platform == "darwin":
        pattern = rf"macosx_\d+_\d+_{machine}"
    elif platform.libc_ver()[0] == "glibc":
        pattern = rf"manylinux_\d+_\d+_{machine}"
    else:
        pattern = rf"musllinux_\d+_\d+_{machine}"
    return any(re.fullmatch(pattern, tag) for tag in tags.split("."))


def _with_credentials(url: str, project: str) -> str:
    """A private index keeps its files behind the same credentials when they are on the same host."""
    credentials = urllib.parse.urlsplit(project).netloc.rpartition("@")
    parts = urllib.parse.urlsplit(url)
    if credentials[0] and parts.netloc == credentials[2]:
        return parts._replace(netloc="".join(credentials)).geturl()
    return url
