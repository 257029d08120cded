"""The command that shows metrics."""

from __future__ import annotations

import argparse

from airflow_provider_cdc.cli.command_support import cli_command, open_store, print_json, print_table
from airflow_provider_cdc.services.connectors.connector_handle import find_connector
from airflow_provider_cdc.services.dashboards.openmetrics_text import format_openmetrics
from airflow_provider_cdc.services.text.status_texts import series_rows


@cli_command
def show_metrics(args: argparse.Namespace) -> None:
    """Show the metrics of one connector, or of all."""
    with open_store(args) as store:
        if args.connector:
            find_connector(store, args.connector)
        all_series = store.metrics.load_series(args.connector)
    if args.openmetrics:
        print(format_openmetrics(all_series), end="")
        return
    if args.output == "json":
        print_json([series.to_document() for series in all_series])
        return
    head = ("connector", "by", "topic", "metric", "value")
    rows = [
        (series.connector, series.producer, series.topic, *row) for series in all_series for row in series_rows(series)
    ]
    print_table(head, rows, "Nothing was measured yet.")
