"""The plugin: pages about connectors in Airflow's UI, and where the operators' links lead.

Every Airflow process imports this module; only the API server asks for the pages and so loads them.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/cdc"


class CdcPlugin(AirflowPlugin):
    """Pages below :data:`PREFIX`, for users who are logged in to Airflow and may see assets."""

    name = "cdc"
    external_views = [
        {
            "name": "CDC connectors",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "cdc-connectors",
        }
    ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The pages; made when they are asked for."""
        from airflow_provider_cdc.plugins.app import app

        return [{"app": app, "url_prefix": PREFIX, "name": "Change data capture"}]
