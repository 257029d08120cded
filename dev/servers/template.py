"""Data folders that are made once and copied for every server, because making them takes most of a first start."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev import paths


def copy(name: str, ingredients: Any, make: Callable[[Path], Path], target: Path) -> None:
    """Fill ``target`` with the data folder that belongs to ``ingredients``.

    ``make`` gets an empty folder to work in and returns the finished data folder inside it; it is called only when
    there is no template of these ingredients yet.
    """
    digest = hashlib.sha256(json.dumps(ingredients, sort_keys=True, default=str).encode()).hexdigest()[:12]
    template = paths.TEMPLATES / f"{name}-{digest}"
    with paths.hold_lock(f"template-{name}"):
        if not template.exists():
            _make(template, make)
    shutil.copytree(template, target, symlinks=True)


def _make(template: Path, make: Callable[[Path], Path]) -> None:
    template.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="cdc-template-"))
    part = template.with_name(f".{template.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(make(work), part, symlinks=True)
        part.rename(template)
    finally:
        shutil.rmtree(work, ignore_errors=True)
