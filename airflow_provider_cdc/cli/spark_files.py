"""The command that puts the files of Spark jobs to a URI."""

from __future__ import annotations

import argparse

from airflow_provider_cdc.cli.command_support import cli_command
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from airflow_provider_cdc.services.submit.spark_files import build_files


@cli_command
def copy_spark_files(args: argparse.Namespace) -> None:
    """Write the scripts and the package to a folder or an object store."""
    from airflow_provider_cdc.changelog.files.storage import Storage

    storage = Storage(args.to, storage_options(args.storage_conn_id))
    for name, content in build_files():
        storage.replace(storage.join_path(name), content)
        print(storage.build_uri(name))
