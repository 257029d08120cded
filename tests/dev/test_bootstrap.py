"""Set-up: what can be tried without changing the machine."""

import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from dev.bootstrap import apt, databases, fetch, jars, uv, venv
from dev.bootstrap.report import Problem, Step

CONTENT = b"a file" * 1000
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()
WHEEL = f"uv-{uv.VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers every path; ``/flaky`` fails the first time, ``/private`` wants credentials."""

    requests: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        seen = [path for path, _ in self.requests]
        self.requests.append((self.path, self.headers.get("Authorization", "")))
        if self.path == "/missing" or (self.path == "/flaky" and self.path not in seen):
            self.send_error(404 if self.path == "/missing" else 503)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def web_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(_Handler, "requests", [])
    monkeypatch.setattr("time.sleep", lambda _: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def step() -> Step:
    return Step(quiet=True)


def test_a_download_is_checked_and_not_repeated(web_url: str, tmp_path: Path, step: Step) -> None:
    target = tmp_path / "folder" / "file"
    assert fetch.download(f"{web_url}/flaky", target, CHECKSUM, step, "file") == len(CONTENT)
    assert target.read_bytes() == CONTENT
    assert fetch.download(f"{web_url}/flaky", target, CHECKSUM, step, "file") == 0
    assert len(_Handler.requests) == 2


def test_a_wrong_checksum_leaves_no_file(web_url: str, tmp_path: Path, step: Step) -> None:
    with pytest.raises(fetch.FetchError, match="expected 00"):
        fetch.download(f"{web_url}/file", tmp_path / "file", "00", step, "file")
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_not_asked_for_again(web_url: str, tmp_path: Path, step: Step) -> None:
    with pytest.raises(fetch.FetchError, match="404"):
        fetch.download(f"{web_url}/missing", tmp_path / "file", CHECKSUM, step, "file")
    assert len(_Handler.requests) == 1


def test_credentials_travel_in_the_header_and_are_never_printed(web_url: str, tmp_path: Path, step: Step) -> None:
    private = web_url.replace("http://", "http://me:s%40cret@")
    fetch.download(f"{private}/file", tmp_path / "file", CHECKSUM, step, "file")
    assert _Handler.requests == [("/file", "Basic bWU6c0BjcmV0")]
    with pytest.raises(fetch.FetchError) as failure:
        fetch.download(f"{private}/missing", tmp_path / "other", CHECKSUM, step, "file")
    assert "cret" not in str(failure.value)


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("text/html", f'<a href="../../files/{WHEEL}#sha256=abc" data-requires-python="&gt;=3.8">{WHEEL}</a>'),
        (
            "application/vnd.pypi.simple.v1+json",
            f'{{"files": [{{"filename": "{WHEEL}", "url": "../../files/{WHEEL}", "hashes": {{"sha256": "abc"}}}}]}}',
        ),
    ],
)
def test_both_forms_of_an_index_page_are_read(content_type: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "page", lambda url, accept: fetch.Page("https://host/simple/uv/", content_type, text))
    assert uv._links("https://host/simple/uv/") == {WHEEL: (f"https://host/files/{WHEEL}", "abc")}


@pytest.mark.parametrize(
    ("system", "libc", "machine", "expected"),
    [
        ("linux", "glibc", "x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ("linux", "glibc", "aarch64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"),
        ("linux", "", "x86_64", "musllinux_1_1_x86_64"),
        ("darwin", "", "arm64", "macosx_11_0_arm64"),
    ],
)
def test_the_wheel_for_this_machine_is_chosen(
    system: str, libc: str, machine: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [
        "linux_armv6l",
        "macosx_10_12_x86_64",
        "macosx_11_0_arm64",
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "manylinux_2_28_aarch64",
        "musllinux_1_1_x86_64",
        "win_amd64",
    ]
    links = {f"uv-{uv.VERSION}-py3-none-{tag}.whl": (tag, "abc") for tag in tags}
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert uv._choose(links) == (expected, "abc")


def test_an_index_without_checksums_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "_fits_machine", lambda tags: True)
    with pytest.raises(Problem, match="no sha256"):
        uv._choose({WHEEL: ("https://host/file", "")})


def test_the_index_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in uv.INDEX_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert uv.index_url() == uv.PYPI
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip/simple")
    assert uv.index_url() == "https://pip/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "mirror=https://uv/simple")
    assert uv.index_url() == "https://uv/simple"


def test_every_pinned_jar_has_an_address_and_a_checksum() -> None:
    pinned = jars.list_jars(
        "delta", "iceberg", "mysql80", "postgres14", "postgres18", "kafka", "iceberg-rest", "sqlite"
    )
    assert all(len(jar.sha256) == 64 and jar.url.endswith(f"/{jar.file_name}") for jar in pinned)
    with pytest.raises(Problem, match="hudi"):
        jars.list_jars("hudi")


def test_the_supported_pythons_come_from_pyproject() -> None:
    low, high = venv.read_supported_versions()
    assert (3, 11) <= low < high


def test_a_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    broken = tmp_path / "mysqld"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    assert databases._version([str(broken)]) == ""


def test_an_unsupported_python_is_explained(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    def fail(*_: object, **__: object) -> str:
        raise Problem("no network")

    monkeypatch.setattr(venv, "read_supported_versions", lambda: ((3, 8), (3, 9)))
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(step, "run", fail)
    with pytest.raises(Problem, match=r"needs Python 3\.8 to 3\.8; this is 3\.1"):
        venv._interpreter(Path("uv"), step)


def test_services_are_forbidden_only_while_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(apt, "POLICY", policy)
    with apt._no_services():
        assert subprocess.run([policy]).returncode == 101
    assert not policy.exists()
    policy.write_text("the administrator's own")
    with apt._no_services():
        pass
    assert policy.read_text() == "the administrator's own"
