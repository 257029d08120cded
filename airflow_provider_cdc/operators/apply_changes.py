"""The task that brings lakehouse tables up to the change log, by a Spark job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_cdc.core.config.secrets import credentials
from airflow_provider_cdc.core.config.table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.status_texts import table_text
from airflow_provider_cdc.hooks.task_base import failure
from airflow_provider_cdc.operators.lineage import applied, is_installed
from airflow_provider_cdc.operators.links import BatchLink
from airflow_provider_cdc.operators.local_driver import LEAN, ClassArchive, little_work
from airflow_provider_cdc.operators.spark_job import SparkJobOperator
from airflow_provider_cdc.operators.warm_task import WarmTask

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_cdc.runtime import ConnectorDefinition

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_UNANNOUNCED = "cdc_unannounced"
_SHOWN = 50


def alias(connector: str) -> AssetAlias:
    """Stands for every table of a connector: a DAG scheduled on it runs whenever one has changed."""
    return AssetAlias(f"cdc://{connector}")


def asset(connector: str, topic: str) -> Asset:
    """The table of a topic, for the schedule of DAGs that read it.

    >>> asset("shop", "shop.inventory.orders").uri
    'cdc://shop/shop.inventory.orders'
    """
    return Asset(f"cdc://{connector}/{topic}")


class ApplyChangesOperator(SparkJobOperator):
    """Submits the Spark job that applies the batches of a connector's change log which the target tables have not seen.

    Repeated, killed or concurrent runs give the same result. For every table that was changed an event of the
    asset ``cdc://<connector>/<topic>`` is emitted, with ``rows`` by operation, ``position``, ``last_batch`` and ``location`` in its extra.

        >>> ApplyChangesOperator(task_id="apply", definition=shop, location="/lake/{database}/{table}", conn_id="spark_default")

    Returns ``{"connector", "target", "last_batch", "events", "topics", "tables", "seconds"}``, where ``topics`` has the events and ``tables`` the
    metrics (docs/operations.md, "Metrics") of the 50 tables with the most events.

    Secret storage options reach the job through its environment, never through its command line; in cluster mode there is
    no such way, and workers and executors need a role or a profile of their own.

    :param definition: the connector; paths are templated
    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}`` (templated): a path or URL, or for Iceberg
        the name of a catalog's table, ``lake.{database}.{table}``
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param profile: how new tables begin: ``compatible`` (most readers know them; a feature of the format is switched on by the first change that
        needs it) or ``fast`` (small changes to large tables cost less: Delta with deletion vectors, Iceberg with deletes of keys)
    :param writes: how rows of tables with a key are written: ``merge`` (always by a MERGE of Spark), ``commit`` (as arrays wherever they can be) or
        ``auto``, what costs less
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere: a list of mappings, or a file (JSON or YAML) with
        one, as docs/targets.md describes them: ``[{"tables": r"shop\\.orders", "mode": "history", "columns": {"drop": ["note"]}}]``.
        ``mode`` is ``current``, ``log``, ``soft_delete`` or ``history``
    :param threads: tables worked on at the same time
    :param adopt: topics whose tables are taken over although they belong to somebody else; their rows are replaced (templated)
    :param check_crc: compare the checksum of each file of the change log too, not only its size and number of rows
    :param run_for: go on for so long, in seconds or as a timedelta: one Spark session applies each batch as soon as it is there, and the
        log of the task has a line for each round. If a task of this kind applies to the same target already, it ends as soon as this one
        is ready. Asset events come at the end. A task that is killed ends after what is being committed; its next try emits its events
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "adopt")
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
        adopt: Sequence[str] = (),
        check_crc: bool = False,
        run_for: float | timedelta | None = None,
        conn_id: str = "spark_default",
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        from spark_jobs.targets import known_profile, known_writes

        kwargs.setdefault("name", f"cdc-apply-{definition.name}")
        kwargs["outlets"] = [*(kwargs.get("outlets") or []), alias(definition.name)]
        super().__init__(
            definition=definition,
            location=location,
            target=target,
            conn_id=conn_id,
            storage_conn_id=storage_conn_id,
            **kwargs,
        )
        self.threads, self.profile, self.writes = threads, known_profile(profile), known_writes(writes)
        self.tables = TableRules.parse(tables)
        self.adopt, self.check_crc = list(adopt), check_crc
        self.run_for = run_for.total_seconds() if isinstance(run_for, timedelta) else run_for
        if self.run_for is not None and not 0 < self.run_for < float("inf"):
            raise ConfigError(f"run_for must be longer than 0 seconds, and is {run_for}.")
        self._warm: WarmTask | None = None
        self.batch: int | None = None
        self._applied: tuple[list[dict[str, Any]], dict[str, Any]] = ([], {})

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        try:
            return self._run(context)
        except CdcError as e:
            raise failure(e) from e

    def _run(self, context: Context) -> dict[str, Any]:
        from airflow.sdk.exceptions import AirflowException

        self._refuse_secrets()  # also if there is nothing to submit
        if self.run_for is not None:
            return self._go_on(context)
        if (report := self._nothing_new()) is not None:
            self.log.info(
                "Nothing to apply: every table of %s stands at the last batch. Spark is not started.", self.connector
            )
            return self._announce(context, report)
        before = self._read_report()
        archive = self._complete(little=little_work(self.access.changelog(), self.connector, before))
        try:
            with self._storage_environment():
                super().execute(context)
        except AirflowException as e:
            archive.drop()
            report = self._read_report()
            if report is None or report == before:
                raise  # the job has written no report: only Spark's own error is known
            if report["failed"] or not archive.making:
                self._remember(context, report)
                raise AirflowException(_failed(report)) from e
            self.log.warning(
                "All tables are up to date; only the archive of the job's classes could not be made: %s", e
            )
        archive.keep()
        report = self._read_report()
        if report is None:
            raise self._no_report()
        return self._announce(context, report)

    # -- a job that goes on -------------------------------------------------------------------------------------------

    def _go_on(self, context: Context) -> dict[str, Any]:
        from airflow.sdk.exceptions import AirflowException, AirflowFailException

        self._warm = warm = WarmTask(
            self.access.changelog().storage, self.connector, self.target, self.location, context
        )
        self._complete("--run-for", str(self.run_for), "--owner", warm.owner)
        error: AirflowException | None = None
        try:
            with self._storage_environment(), warm.submitted():
                super().execute(context)
        except AirflowException as e:
            error = e
        report = warm.report()
        if error is not None:
            if report is None:
                raise error
            self._remember(context, report)
            if not report["failed"]:
                raise error
            # a try that comes back would only take over from the one that goes on, which has the same trouble
            kind = AirflowFailException if warm.taken_over() else AirflowException
            raise kind(_failed(report)) from error
        if report is None:
            if not warm.began():
                raise AirflowException(
                    f"The Spark job ended well, but left no trace in {self.changelog}: is this the change log that it read?"
                )
            self.log.info("Another task took over before this one's turn had come: it has applied nothing.")
            report = {**(self._read_report() or {"last_batch": 0}), "tables": [], "seconds": 0.0}
        done = self._announce(context, report)
        if warm.killed:  # its state may be decided already, and then its events are dropped
            self._remember(context, report)
        return done

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """What the run has applied, for Airflow's OpenLineage provider; also of one that has failed."""
        return applied(*self._applied, self.changelog, self.connector, self.target)

    def on_kill(self) -> None:
        """End the job; one that goes on ends after what it is committing, if it can."""
        warm = self._warm
        alone = (
            warm is not None and not warm.running
        )  # nobody waits for the job any more, to make something of its report
        if warm is None or not warm.end(getattr(self._hook, "_submit_sp", None), self.log):
            super().on_kill()
        if warm is not None and alone and (report := warm.report()) is not None:
            self._remember(warm.context, report)

    # -- the submit ---------------------------------------------------------------------------------------------------

    def _with_secrets(self) -> list[str]:
        return super()._with_secrets() + [
            f"location of the rule for {', '.join(rule.tables)}"
            for rule in self.tables.rules
            if any(credentials("location.url", location) for location in rule.locations)
        ]

    def _complete(self, *more: str, little: bool = False) -> ClassArchive:
        """Add what the job needs to the user's settings.

        :param little: it is little work
        """
        self._prepare(
            "apply_changes.py", "--profile", self.profile, "--writes", self.writes, "--threads", str(self.threads),
            *(f"--adopt={topic}" for topic in self.adopt), *(["--tables", self.tables.text()] if self.tables else []),
            *(["--check-crc"] if self.check_crc else []), *more,
        )  # fmt: skip
        submit = self._get_hook()._connection
        archive = ClassArchive(submit["spark_binary"], *filter(None, (self.driver_class_path, self.jars)))
        if not self._cluster_mode() and _JAVA_OPTIONS not in (self.conf or {}):
            quiet = Path(__file__).with_name("log4j2.properties").as_uri()
            options = [f"-Dlog4j2.configurationFile={quiet}"]
            if str(submit["master"]).partition("[")[0] == "local":
                # one that goes on has its own time to get fast, and ends when nobody waits for it
                options += [*(LEAN if little else ()), *archive.options(make=self.run_for is None)]
            self.conf = {**(self.conf or {}), _JAVA_OPTIONS: " ".join(options)}
        return archive

    # -- the report ---------------------------------------------------------------------------------------------------

    def _nothing_new(self) -> dict[str, Any] | None:
        """The last job's report, if there is nothing to do after it."""
        from spark_jobs.up_to_date import nothing_new

        if self.adopt:
            return None
        return nothing_new(self.access.changelog(), self.connector, self.target, self.location, self.tables.digest())

    def _read_report(self) -> dict[str, Any] | None:
        """What the last job wrote beside the change log."""
        from airflow_provider_cdc.changelog.applied import AppliedReports

        return AppliedReports(self.access.changelog().storage, self.connector).read(self.target, self.location)

    def _remember(self, context: Context, report: dict[str, Any]) -> None:
        """Record what a failed run has applied, so that the next try of the task emits its events, too."""
        from airflow_provider_cdc.changelog.applied import merged

        self._note_lineage(report)
        if (store := context.get("task_state_store")) is not None:
            store.set(_UNANNOUNCED, json.dumps(merged([*self._unannounced(context), *report["tables"]])))

    def _unannounced(self, context: Context) -> list[dict[str, Any]]:
        store = context.get("task_state_store")
        return [] if store is None else list(json.loads(str(store.get(_UNANNOUNCED) or "[]")))

    def _note_lineage(self, report: dict[str, Any]) -> None:
        """Read now what lineage needs: it is asked for in another process, which has no way to the change log."""
        from airflow_provider_cdc.changelog.applied import merged
        from airflow_provider_cdc.changelog.origins import TableOrigins

        if not is_installed():
            return
        origins: dict[str, Any] = {}
        try:
            origins = TableOrigins(self.access.changelog().storage, self.connector).read(self.target, self.location)
        except CdcError as e:
            self.log.warning("OpenLineage is told of tables only, not of columns: %s", e)
        self._applied = merged(report["tables"]), origins

    def _announce(self, context: Context, report: dict[str, Any]) -> dict[str, Any]:
        """Emit an event for each table that was changed."""
        from airflow_provider_cdc.changelog.applied import measured, merged, name_of

        self._note_lineage(report)
        tables = merged([*self._unannounced(context), *report["tables"]])
        events = context["outlet_events"][alias(self.connector)]
        for table in tables:
            events.add(
                asset(self.connector, table["topic"]),
                extra={name: table[name] for name in ("rows", "position", "first_batch", "last_batch", "location")},
            )
            self.log.info("  %s → %s", table_text(table), table["location"])
        self.batch = report["last_batch"] or None
        totals = {name_of(table): sum(table["rows"].values()) for table in tables}
        by_topic = {table["topic"]: totals[name_of(table)] for table in tables}  # its tables have read the same events
        self.log.info(
            "Applied %s events to %d tables in %.1f s; %s stands at batch %s.",
            f"{sum(by_topic.values()):,}", len(totals), report["seconds"], self.connector, report["last_batch"],
        )  # fmt: skip
        return {
            "connector": self.connector,
            "target": self.target,
            "last_batch": report["last_batch"],
            "events": sum(by_topic.values()),
            "topics": dict(sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]),
            "tables": measured(tables, _SHOWN),
            "seconds": report["seconds"],
        }


def _failed(report: dict[str, Any]) -> str:
    lines = [f"  {topic}: {text}" for topic, text in sorted(report["failed"].items())]
    return "\n".join(
        [
            f"{len(lines)} tables of {report['connector']} could not be brought up to date:",
            *lines,
            f"  Safe:   the other tables stand at batch {report['last_batch']}; the change log keeps everything for these.",
            "  Repair: fix what the messages name, then clear this task: each table goes on from its last batch.",
        ]
    )
