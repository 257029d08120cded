"""The plugin: pages about connectors within Airflow's UI, and their API.

Every Airflow process imports this module; only the API server asks for the API and so loads it.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_cdc.hooks.airflow_compat import find_bundle_url
from airflow_provider_cdc.hooks.page_links import ROUTE

PREFIX = "/cdc"


class CdcPlugin(AirflowPlugin):
    """Pages at ``/plugin/cdc``, and their API below :data:`PREFIX`, for users who are logged in to Airflow and may see assets."""

    name = "cdc"
    react_apps = [
        {
            "name": "CDC connectors",
            "bundle_url": bundle_url,
            "destination": "nav",
            "category": "browse",
            "url_route": ROUTE,
        }
        for bundle_url in [find_bundle_url(f"{PREFIX.removeprefix('/')}/static/pages.js")]
        if bundle_url is not None
    ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Applications that the plugin serves; built at first use."""
        from airflow_provider_cdc.plugins.plugin_app import app

        return [{"app": app, "url_prefix": PREFIX, "name": "Change data capture"}]
