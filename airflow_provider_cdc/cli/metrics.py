"""The command that shows metrics."""

from __future__ import annotations

import argparse

from airflow_provider_cdc.cli.command_support import command, open_store, print_json, print_table
from airflow_provider_cdc.services.connectors.connector_access import find_connector
from airflow_provider_cdc.services.dashboards.openmetrics import openmetrics
from airflow_provider_cdc.services.text.format_status import series_rows


@command
def metrics(args: argparse.Namespace) -> None:
    """Show the metrics of one connector, or of all."""
    with open_store(args) as store:
        if args.connector:
            find_connector(store, args.connector)
        found = store.metrics.of(args.connector)
    if args.openmetrics:
        print(openmetrics(found), end="")
        return
    if args.output == "json":
        print_json([one.document() for one in found])
        return
    head = ("connector", "by", "topic", "metric", "value")
    rows = [(one.connector, one.producer, one.topic, *row) for one in found for row in series_rows(one)]
    print_table(head, rows, "Nothing was measured yet.")
