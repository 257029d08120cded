"""Airflow connections: to sources, to the state tables, to target databases."""

from __future__ import annotations

from airflow_provider_cdc.core.docs_addresses import set_docs_base


def _read_docs_url() -> str:
    from airflow_provider_cdc.hooks.airflow_compat import conf

    return str(conf.get("cdc", "docs_url", fallback=""))


set_docs_base(_read_docs_url)  # each process of Airflow that raises or shows an error has loaded this package
