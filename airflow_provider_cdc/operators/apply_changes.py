"""The task that brings lakehouse tables up to the change log, by a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.base.apply_job import ApplyJobOperator
from airflow_provider_cdc.operators.base.connector_apply_report import (
    ConnectorTables,
    build_connector_alias,
    build_topic_asset,
    secret_places,
)
from airflow_provider_cdc.operators.base.operator_links import BatchLink
from airflow_provider_cdc.operators.base.spark_job_operator import SparkJobOperator, known_threads

if TYPE_CHECKING:
    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.services.submit.spark_job import SparkJob

__all__ = ["ApplyChangesOperator", "build_connector_alias", "build_topic_asset"]

_SHOWN = 50


class ApplyChangesOperator(ApplyJobOperator, SparkJobOperator):
    r"""Submits the Spark job that applies the batches of a connector's change log which the target tables have not seen.

    Repeated, killed or concurrent runs give the same result. For every table that was changed an event of the
    asset ``cdc://<connector>/<topic>`` is emitted, with ``rows`` by operation, ``position``, ``last_batch`` and ``location`` in its extra.

        >>> ApplyChangesOperator(task_id="apply", definition=shop, location="/lake/{database}/{table}", conn_id="spark_default")

    Returns ``{"connector", "target", "last_batch", "events", "topics", "tables", "seconds"}``, where ``topics`` has the events and ``tables`` the
    metrics (docs/run/monitoring.md, "Metrics of an apply") of the 50 tables with the most events.

    Secret storage options reach the job through its environment, never through its command line; in cluster mode there is
    no such way, and workers and executors need a role or a profile of their own.

    :param definition: the connector; paths are templated
    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}`` (templated): a path or URL, or for Iceberg
        the name of a catalog's table, ``lake.{database}.{table}``
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param profile: how new tables begin: ``compatible`` (most readers know them; a feature of the format is switched on by the first change that
        needs it) or ``fast`` (small changes to large tables cost less: Delta with deletion vectors, Iceberg with deletes of keys)
    :param writes: how rows of tables with a key are written: ``merge`` (always by a MERGE of Spark), ``commit`` (as arrays wherever they can be) or
        ``auto``, the cheaper one
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere: a list of mappings, or a file (JSON or YAML) with
        one, as docs/targets/rules.md describes them: ``[{"tables": r"shop\.orders", "mode": "history", "columns": {"drop": ["note"]}}]``.
        ``mode`` is ``current``, ``log``, ``soft_delete`` or ``history``
    :param threads: tables worked on at the same time
    :param adopt: topics whose tables are taken over although they belong to another user or job; their rows are replaced (templated)
    :param check_crc: compare the checksum of each file of the change log too, not only its size and number of rows
    :param run_for: continue for so long, in seconds or as a timedelta: one Spark session applies each batch as soon as it is there, and the
        log of the task has a line for each round. If a task of this kind applies to the same target already, it ends as soon as this one
        is ready. Asset events come at the end. A task that is killed ends after the present commit; its next try emits its events
    :param state_conn_id: Airflow connection to the state tables, which get the metrics (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "state_conn_id", "adopt")
    TEXTS = ("location",)
    NAME_LISTS = ("adopt",)
    FLAGS = ("check_crc",)
    operator_extra_links = (BatchLink(),)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        location: str,
        target: str = "delta",
        profile: str = "compatible",
        writes: str = "auto",
        tables: Any = (),
        threads: int = 4,
        adopt: Sequence[str] | str = (),
        check_crc: bool = False,
        run_for: float | timedelta | None = None,
        conn_id: str = "spark_default",
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        from airflow_provider_cdc.targets.lake.formats import known_profile, known_writes

        kwargs.setdefault("name", f"cdc-apply-{definition.name}")
        kwargs["outlets"] = [*(kwargs.get("outlets") or []), build_connector_alias(definition.name)]
        super().__init__(
            definition=definition,
            location=location,
            target=target,
            conn_id=conn_id,
            storage_conn_id=storage_conn_id,
            **kwargs,
        )
        self.state_conn_id = state_conn_id
        self.threads, self.profile, self.writes = known_threads(threads), known_profile(profile), known_writes(writes)
        self.tables = TableRules.parse(tables)
        self.adopt, self.check_crc = [adopt] if isinstance(adopt, str) else adopt, check_crc
        self.check_parameters()
        self._set_run_for(run_for)
        self.batch: int | None = None

    def _connectors(self) -> list[ConnectorTables]:
        return [
            ConnectorTables(
                self.connector_access, self.target, self.location, self.tables, list(self.adopt), _SHOWN, self.log
            )
        ]

    def _connector_names(self) -> list[str]:
        return [self.connector]

    def build_job(self, *more: str) -> SparkJob:
        """Return the job, without its secrets.

        :param more: further arguments
        :raises ConfigError: a secret would be in it
        """
        return self._prepare(
            "apply_changes.py", "--profile", self.profile, "--writes", self.writes, "--threads", str(self.threads),
            *(f"--adopt={topic}" for topic in self.adopt), *(["--tables", self.tables.format_rules()] if self.tables else []),
            *(["--check-crc"] if self.check_crc else []), *more,
        )  # fmt: skip

    def _tell_job(self, connectors: Sequence[ConnectorTables], *more: str) -> None:
        self.build_job(*more)

    def _with_secrets(self) -> list[str]:
        return super()._with_secrets() + secret_places(self.tables)

    def _result(self, done: Sequence[dict[str, Any]]) -> dict[str, Any]:
        (result,) = done
        self.batch = result["last_batch"] or None
        return result
