"""The metadata of this provider for Airflow. Read by every Airflow process: nothing heavy is imported."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.sources import SOURCES, config_class

_STATE: dict[str, Any] = {
    "connection-type": "cdc_state",
    "hook-class-name": "airflow_provider_cdc.hooks.state.CdcStateHook",
    "hook-name": "CDC: state database",
    "ui-field-behaviour": {
        "hidden-fields": ["host", "port", "login", "schema"],
        "relabeling": {"password": "SQLAlchemy URL"},
        "placeholders": {"password": "postgresql+psycopg://airflow:password@db/airflow"},
    },
    "conn-fields": {
        "schema": {
            "label": "Database schema",
            "description": "schema of the state tables, if it is not the default schema",
            "schema": {"type": ["string", "null"]},
        },
    },
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-cdc",
        "name": "Change data capture",
        "description": "Change data capture from database logs to lakehouse tables, with Airflow and Spark only.",
        "integrations": [
            {"integration-name": "Change data capture", "external-doc-url": _URL, "tags": ["software"]},
        ],
        "hooks": _modules("hooks", "source", "state"),
        "operators": _modules(
            "operators",
            "capture",
            "capture_group",
            "apply_changes",
            "apply_connectors",
            "apply_to_database",
            "apply_to_database_on_spark",
            "maintain_tables",
            "retention",
            "verify_tables",
            "verify_database",
            "rebuild_tables",
            "rebuild_database",
            "signal",
            "lifecycle",
            "table_actions",
            "source_procedure",
        ),
        "sensors": _modules("sensors", "changes_available", "any_changes", "snapshot_completed", "changes_applied"),
        "triggers": _modules(
            "triggers",
            "changes_available",
            "any_changes",
            "signal_completed",
            "initial_snapshot",
            "changes_applied",
            "asset_changes",
            "apply_due",
            "spark_job",
        ),
        "notifications": ["airflow_provider_cdc.notifications.connector_notifier.CdcNotifier"],
        "connection-types": [*(_connection_type(kind) for kind in sorted(SOURCES)), _STATE],
        "extra-links": [
            "airflow_provider_cdc.operators.base.operator_links.BatchLink",
            "airflow_provider_cdc.operators.base.operator_links.ConnectorsLink",
            "airflow_provider_cdc.hooks.page_links.ConnectorLink",
        ],
        "db-managers": ["airflow_provider_cdc.state.db_manager.CdcDBManager"],
        "cli": ["airflow_provider_cdc.cli.command_parser.build_commands"],
        "config": {
            "cdc": {
                "description": "Change data capture.",
                "options": {
                    "show_rows_of": {
                        "description": "Comma-separated connectors of which ``airflow cdc row`` may show rows; ``*`` = all. Rows are data: by default, no rows are shown.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "shop",
                        "default": "",
                    },
                    "docs_url": {
                        "description": "Address of the documentation that errors name their pages by: a site that ``dev/docs`` has built, or a pattern with "
                        "``{page}`` for a page such as ``errors/PositionLost``. By default, the API server shows the documentation of the installed release below ``[api] base_url``; "
                        "without that option, errors name the file of the page in the repository.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "https://docs.example.com/cdc",
                        "default": "",
                    },
                    "query_sources": {
                        "description": "Sources that pages may query, from the API server. ``connectors``: those of connectors that have captured (check, gap, "
                        "offset, comparison of a row); the wizard also queries others if ``[core] test_connection`` is ``Enabled``. ``all``: the wizard queries "
                        "each source whose connection the user may edit. ``none``: no source. ``airflow cdc check`` works in any case.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "all",
                        "default": "connectors",
                    },
                    "state_conn_id": {
                        "description": "Connection to the state tables that the pages and ``/cdc/metrics`` show.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "cdc_state_default",
                        "default": "cdc_state_default",
                    },
                },
            },
        },
        "asset-uris": [{"schemes": ["cdc"], "handler": None}],
    }


_URL = "https://pypi.org/project/airflow-provider-cdc/"


def _modules(kind: str, *names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_provider_cdc.{kind}.{name}" for name in names]
    return [{"integration-name": "Change data capture", "python-modules": modules}]


def _connection_type(kind: str) -> dict[str, Any]:
    """Build the connection type of a kind of source, from the form in its configuration."""
    config = config_class(kind)
    form = config.FORM
    return {
        "connection-type": f"cdc_{kind}",
        "hook-class-name": f"airflow_provider_cdc.hooks.source.{kind}",
        "hook-name": f"CDC: {kind}",
        "ui-field-behaviour": {
            "hidden-fields": list(form.hidden),
            "relabeling": dict(form.labels),
            "placeholders": dict(form.placeholders),
        },
        "conn-fields": {
            name: {"label": name, "description": description, "schema": {"type": ["string", "null"]}}
            for name, description in {**form.extras, **config.list_login_extras()}.items()
        },
    }
