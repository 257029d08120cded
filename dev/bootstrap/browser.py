"""Chromium, for tests of pages: where it is, and how it gets there when it is missing."""

import os
import shutil
import subprocess
from pathlib import Path

from dev import paths
from dev.bootstrap import apt
from dev.bootstrap.report import Problem, Step

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage")
"""What it needs in a container."""


def find() -> Path | None:
    """A Chromium that runs: the one that ``CDC_DEV_CHROMIUM`` names, the system's, or one fetched before."""
    given = os.environ.get("CDC_DEV_CHROMIUM")
    places = [given] if given else [*map(shutil.which, NAMES), str(_chromium_path())]
    return next((Path(place) for place in places if place and _version(Path(place))), None)


def ensure(step: Step | None = None) -> Path:
    """A Chromium, fetched now if there is none; a :class:`Problem` if that is impossible."""
    step = step or Step(quiet=True)
    with paths.hold_lock("chromium"):
        found = find()
        if found is None:
            _fetch(step)
            found = find()
    if found is None:
        raise Problem("Chromium was fetched and does not run. Install one, or name one in CDC_DEV_CHROMIUM.")
    step.done(f"{_version(found)} at {found}")
    return found


def _fetch(step: Step) -> None:
    if apt.may_install():
        apt.install(["chromium"], step)
        return
    root = paths.OPT / "chromium"
    apt.unpack(["chromium"], root, step)
    libraries = sorted({str(path.parent) for path in root.rglob("*.so*")})
    start = _chromium_path()
    # Debian's own start script looks for itself below /usr
    start.write_text(
        f'#!/bin/sh\nexport LD_LIBRARY_PATH="{os.pathsep.join(libraries)}"\nexec "{root}/usr/lib/chromium/chromium" "$@"\n'
    )
    start.chmod(0o755)


def _chromium_path() -> Path:
    return paths.OPT / "chromium" / "start"


def _version(binary: Path) -> str:
    """Return the browser's output for ``--version``; empty when it does not run."""
    try:
        found = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
