"""Airflow connections: to sources, to the state tables, to target databases."""

from __future__ import annotations

from airflow_provider_cdc.core.docs_addresses import set_docs_base

DOCS_ROUTE = "/cdc/docs"
"""Path of the API server's pages of the documentation, see :mod:`airflow_provider_cdc.plugins.docs_pages`."""


def _read_docs_url() -> str:
    from airflow_provider_cdc.hooks.airflow_compat import conf

    if url := str(conf.get("cdc", "docs_url", fallback="")).strip():
        return url
    server = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{server}{DOCS_ROUTE}/{{page}}.md" if server.startswith(("http://", "https://")) else ""


set_docs_base(_read_docs_url)  # each process of Airflow that raises or shows an error has loaded this package
