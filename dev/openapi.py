"""Writes the OpenAPI document of the pages' API, from which the types of the pages are made: ``python -m dev.openapi``."""

from __future__ import annotations

import json
import sys

from dev.bootstrap.ui import SOURCES

DOCUMENT = SOURCES / "openapi.json"


def document() -> str:
    """The document as the API is now."""
    from airflow_provider_cdc.plugins.plugin_app import app

    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
    sys.exit(0)
