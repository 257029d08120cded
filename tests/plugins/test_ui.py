"""The pages' TypeScript fits the API: types are made from the OpenAPI document, which is that of the API as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path
from zipfile import ZipFile

from dev import openapi
from dev.airflow import build_wheel
from dev.bootstrap import ui, uv
from dev.bootstrap.report import Step


def test_the_document_is_that_of_the_api() -> None:
    assert openapi.DOCUMENT.read_text() == openapi.document(), "run: .venv/bin/python -m dev.openapi, then dev/setup"


def test_the_pages_fit_the_types_of_the_api() -> None:
    folder = ui.packages(uv.ensure(Step(quiet=True)))
    for script in ("types", "check"):
        found = subprocess.run(["npm", "run", "--silent", script], cwd=folder, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr


def test_the_wheel_has_the_built_pages_and_not_their_sources(tmp_path: Path) -> None:
    ui.ensure(uv.ensure(Step(quiet=True)))
    with ZipFile(build_wheel(tmp_path)) as wheel:
        names = [name for name in wheel.namelist() if "/plugins/" in name]
    assert "airflow_provider_cdc/plugins/static/pages.js" in names
    assert [name for name in names if "/plugins/ui/" in name or name.endswith(".built")] == []
