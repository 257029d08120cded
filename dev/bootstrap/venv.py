"""The project's virtual environment, exactly as ``uv.lock`` says."""

import hashlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

from dev import paths
from dev.bootstrap import uv
from dev.bootstrap.report import Problem, Step

STAMP = paths.VENV / ".dev-setup"
PYTHON = paths.VENV / "bin" / "python"


def ensure(uv_binary: Path, step: Step) -> None:
    """Make ``.venv`` agree with ``uv.lock``; does nothing when a stamp says that it already does."""
    existing = _existing_version()
    if existing and STAMP.exists() and STAMP.read_text() == _stamp(existing):
        step.done(f"Python {_format_version(existing)}, unchanged")
        return
    interpreter = PYTHON if existing else _interpreter(uv_binary, step)
    STAMP.unlink(missing_ok=True)
    _sync(uv_binary, interpreter, step)
    version = _existing_version()
    if not version:
        raise Problem(f"{paths.VENV} was made, but its Python does not run. Delete the folder and run dev/setup again.")
    STAMP.write_text(_stamp(version))
    count = len(list(paths.VENV.glob("lib/python*/site-packages/*.dist-info")))
    step.done(f"Python {_format_version(version)}, {count} packages")


def read_supported_versions() -> tuple[tuple[int, int], tuple[int, int]]:
    """The first supported Python and the first one that is too new, from ``requires-python``."""
    text = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    match = re.fullmatch(r">=(\d+)\.(\d+),\s*<(\d+)\.(\d+)", text)
    if not match:
        raise Problem(f"requires-python = {text!r} in pyproject.toml is not of the form >=3.x,<3.y")
    low_major, low_minor, high_major, high_minor = map(int, match.groups())
    return (low_major, low_minor), (high_major, high_minor)


def _stamp(version: tuple[int, int, int]) -> str:
    digest = hashlib.sha256()
    for name in ("uv.lock", "pyproject.toml"):
        digest.update((paths.ROOT / name).read_bytes())
    digest.update(_format_version(version).encode())
    digest.update(str(paths.ROOT).encode())  # a moved working copy has wrong paths inside its environment
    return digest.hexdigest()


def _existing_version() -> tuple[int, int, int] | None:
    """The Python version of the environment that is there, if it is usable for this project."""
    try:
        config = (paths.VENV / "pyvenv.cfg").read_text()
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)\.(\d+)", config, re.MULTILINE)
    if not match or not PYTHON.exists():
        return None
    version = (int(match[1]), int(match[2]), int(match[3]))
    low, high = read_supported_versions()
    return version if low <= version[:2] < high else None


def _interpreter(uv_binary: Path, step: Step) -> Path:
    """The Python to make the environment from: the one that runs this, else another supported one."""
    low, high = read_supported_versions()
    if low <= sys.version_info[:2] < high:
        return Path(getattr(sys, "_base_executable", None) or sys.executable)
    for minor in range(high[1] - 1, low[1] - 1, -1):
        if found := shutil.which(f"python3.{minor}"):
            return Path(found)
    expected = f"{high[0]}.{high[1] - 1}"
    try:
        step.run([uv_binary, "python", "install", expected], title=f"fetching Python {expected}", env=uv_environment())
        return Path(
            step.run(
                [uv_binary, "python", "find", "--no-project", expected], title=f"looking for Python {expected}"
            ).strip()
        )
    except Problem as problem:
        raise Problem(
            f"This project needs Python {low[0]}.{low[1]} to {expected}; this is {sys.version.split()[0]}, "
            "no other one is on PATH, and uv could not fetch one.\n"
            f"Install one (for example: apt-get install python{expected}) and run dev/setup again.\n{problem}"
        ) from problem


def _sync(uv_binary: Path, interpreter: Path, step: Step) -> None:
    env = uv_environment()
    if uv.index_url().rstrip("/") == uv.PYPI:
        command: list[str | Path] = [uv_binary, "sync", "--frozen", "--no-progress", "--python", interpreter]
        step.run(command, title="installing packages", env=env, cwd=paths.ROOT)
    else:
        _sync_from_mirror(uv_binary, interpreter, env, step)


def _sync_from_mirror(uv_binary: Path, interpreter: Path, env: dict[str, str], step: Step) -> None:
    """The same packages from another index; ``uv sync --frozen`` takes them from the addresses in the lock file."""
    env["UV_DEFAULT_INDEX"] = uv.index_url()
    requirements = paths.HOME / "requirements.txt"
    requirements.parent.mkdir(parents=True, exist_ok=True)
    export: list[str | Path] = [uv_binary, "export", "--frozen", "--no-emit-project", "--output-file", requirements]
    step.run(export, title="reading uv.lock", env=env, cwd=paths.ROOT)
    if not _existing_version():
        step.run(
            [uv_binary, "venv", "--clear", "--python", interpreter, paths.VENV],
            title="making .venv",
            env=env,
            cwd=paths.ROOT,
        )
    install: list[str | Path] = [uv_binary, "pip", "sync", "--python", PYTHON, "--require-hashes", requirements]
    step.run(install, title="installing packages from the mirror", env=env, cwd=paths.ROOT)
    project: list[str | Path] = [uv_binary, "pip", "install", "--python", PYTHON, "--no-deps", "--editable", "."]
    step.run(project, title="installing the project", env=env, cwd=paths.ROOT)


def uv_environment() -> dict[str, str]:
    """The environment for uv: it trusts the same certificates as Python does and works on this working copy only."""
    ignored = {"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", *uv.INDEX_VARIABLES}
    env = {name: value for name, value in os.environ.items() if name not in ignored}
    env.setdefault("UV_SYSTEM_CERTS", "1")
    if "PIP_CERT" in env:
        env.setdefault("SSL_CERT_FILE", env["PIP_CERT"])
    return env


def _format_version(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
