"""Packages of users' own, with entry points, that are installed for one test."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, points: Mapping[str, Mapping[str, str]], code: str = ""
) -> None:
    """Install a package: a module with the name of the folder, and entry points.

    :param points: group → name → object, as ``module:attribute``; ``{module}`` is the module
    """
    module = f"added_{folder.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    place = folder / "site"
    info = place / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (place / f"{module}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = []
    for group, names in points.items():
        lines += [f"[{group}]", *(f"{name} = {value.format(module=module)}" for name, value in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setitem(sys.modules, module, None)  # taken out at the end of the test
    del sys.modules[module]
