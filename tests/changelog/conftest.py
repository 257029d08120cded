"""The two kinds of storage that the change log is tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage


@pytest.fixture(params=["local", "s3"])
def storage_address(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Address and options of an empty change log."""
    if request.param == "local":
        return str(tmp_path / "log"), {}
    s3 = request.getfixturevalue("s3")
    return f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log", s3.storage_options


@pytest.fixture
def storage(storage_address: tuple[str, dict[str, Any]]) -> Storage:
    return Storage(*storage_address)
