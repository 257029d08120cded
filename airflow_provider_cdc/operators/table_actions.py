"""The task that compares, repairs or rebuilds tables of a connector that is only named: the last runs have recorded how to reach its source and its targets."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.page_links import ConnectorLink
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.hooks.target_database import TARGET
from airflow_provider_cdc.services.connectors.connector_targets import UNTOUCHED, database_of, known_access, one_target
from airflow_provider_cdc.services.connectors.parameter_checks import parse_seconds
from airflow_provider_cdc.services.tasks.action_outcome_recorder import record_outcome
from airflow_provider_cdc.services.tasks.connector_fields import StateFields, to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess


class TableAction(enum.StrEnum):
    """An action on tables."""

    VERIFY = "verify"
    REPAIR = "repair"
    REBUILD = "rebuild"


TITLES = {
    TableAction.VERIFY: "Verify the tables against the source",
    TableAction.REPAIR: "Verify the tables, and snapshot the rows that differ again",
    TableAction.REBUILD: "Rebuild the tables from the change log",
}
"""The choices in the form."""


class WorkOnTablesOperator(StateFields, BaseOperator):
    """Verifies tables of a target, repairs those that differ, or builds tables again from the change log.

    It works as ``airflow cdc verify``, ``verify --repair`` and ``rebuild``.

        >>> WorkOnTablesOperator(task_id="compare", connector="shop", work="verify")

    Returns the result of :class:`~airflow_provider_cdc.operators.verify_tables.VerifyTablesOperator` or
    :class:`~airflow_provider_cdc.operators.rebuild_tables.RebuildTablesOperator`.

    :param connector: the connector, or its name (templated)
    :param work: see :class:`TableAction` (templated)
    :param tables: of a comparison, patterns as in ``table.include.list``, by default all; of a rebuild, ``<database>.<table>`` or topics.
        A JSON list is taken, too (templated)
    :param target: kind of the target, where there are several (templated)
    :param location: where its tables are, as its apply has it, where there are several (templated)
    :param confirm: the connector's name, of a repair and of a rebuild (templated)
    :param wait: how long a comparison waits for the capture, and then for the apply
    :param spark: arguments of ``SparkSubmitOperator``, such as ``conn_id``, ``jars``, ``packages`` and ``conf``
    :param state_conn_id: Airflow connection to the state tables (templated)
    """

    template_fields: Sequence[str] = (
        *StateFields.STATE_FIELDS, "work", "tables", "target", "location", "confirm", "spark",
    )  # fmt: skip
    template_fields_renderers = {"spark": "json"}
    OPTIONAL_TEXTS = ("target", "location", "confirm")
    NAME_LISTS = ("tables",)
    MAPPINGS = ("spark",)
    operator_extra_links = (ConnectorLink(),)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        connector: str | ConnectorDefinition,
        work: str,
        tables: Sequence[str] | str = (),
        target: str = "",
        location: str = "",
        confirm: str | None = None,
        wait: float | timedelta = timedelta(minutes=10),
        spark: Mapping[str, Any] | None = None,
        state_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector_name(connector, state_conn_id)
        self.work, self.tables, self.target, self.location = str(work), tables, target, location
        self.confirm, self.spark = confirm, spark if spark is not None else {}
        self.wait = timedelta(seconds=parse_seconds("wait", wait, zero=True))
        self.check_parameters()
        self._task: Any = None

    def execute(self, context: Context) -> Any:
        with record_outcome(self.connector, self.state_conn_id, self.work, context, self.log) as lines:
            try:
                self._task = self._build_task()
            except CdcError as e:
                raise to_airflow_exception(e) from e
            result = self._task.execute(context)
            lines += _format_result(result)
        return result

    def on_kill(self) -> None:
        if self._task is not None:
            self._task.on_kill()

    def _build_task(self) -> Any:
        """Build the task that does the work.

        :raises CdcError: it is not known how, or not confirmed
        """
        work = self._confirmed()
        with CdcStateHook(self.state_conn_id).open_store() as store:
            access = known_access(store, self.connector, self.state_conn_id)
        target, location = one_target(access, self.target or None, self.location or None)
        tables = _listed(self.tables)
        if work is TableAction.REBUILD:
            return build_rebuild_task(access, target, location, tables, self.spark)
        options: dict[str, Any] = {"tables": tables, "wait": self.wait, "repair": work is TableAction.REPAIR}
        return build_verify_task(access, target, location, self.spark, **options)

    def _confirmed(self) -> TableAction:
        if self.work not in list(TableAction):
            raise ConfigError(
                f"{self.work!r} is not an action.",
                safe=UNTOUCHED,
                remedy=f"give one of {', '.join(work.value for work in TableAction)}",
            )
        work = TableAction(self.work)
        if work is not TableAction.VERIFY and self.confirm != self.connector:
            raise ConfigError(
                f"The action {work.value} is not confirmed: confirm is {self.confirm or ''!r}, but the connector is {self.connector}.",
                safe=UNTOUCHED,
                remedy="enter the connector's name in confirm",
            )
        return work


def _format_result(result: Mapping[str, Any]) -> list[str]:
    """Format the result of a comparison or a rebuild, for people.

    >>> _format_result({"tables": {"shop.a": 2}, "not_compared": {"shop.b": "it has no key"}})
    ['Equal to the source: shop.a (2 rows).', 'Not compared: shop.b: it has no key']
    """
    tables = result["tables"]
    if "not_compared" not in result:
        return [f"Rebuilt: {', '.join(tables)}."]
    equal = ", ".join(f"{name} ({rows:,} row{'' if rows == 1 else 's'})" for name, rows in tables.items())
    return [
        f"Equal to the source: {equal or 'none'}.",
        *(f"Not verified: {t}: {why}" for t, why in result["not_compared"].items()),
    ]


def _listed(tables: Sequence[str] | str) -> list[str]:
    """Names from a template, which gives a text.

    >>> _listed('["shop.orders"]'), _listed("[a-z]+.orders"), _listed("")
    (['shop.orders'], ['[a-z]+.orders'], [])
    """
    if not isinstance(tables, str):
        return list(tables)
    try:
        names = json.loads(tables)
    except ValueError:
        names = None
    return [str(name) for name in names] if isinstance(names, list) else [tables] if tables else []


def build_verify_task(
    access: ConnectorAccess,
    target: str,
    location: str,
    spark: Mapping[str, Any],
    *,
    database: str | None = None,
    **options: Any,
) -> Any:
    """Build the task that compares tables of a target.

    :param database: another connection to a target database
    :param options: that both kinds of tasks have
    """
    common: dict[str, Any] = {
        "task_id": "verify", "definition": access.definition, "source_conn_id": access.conn_id,
        "state_conn_id": access.state_conn_id, "storage_conn_id": access.storage_conn_id, **options,
    }  # fmt: skip
    if target == TARGET:
        from airflow_provider_cdc.operators.verify_database import VerifyDatabaseOperator

        conn_id, sink = database_of(access, location, database)
        return VerifyDatabaseOperator(conn_id=conn_id, sink=sink, **common)
    from airflow_provider_cdc.operators.verify_tables import VerifyTablesOperator

    return VerifyTablesOperator(target=target, location=location, **common, **spark)


def build_rebuild_task(
    access: ConnectorAccess,
    target: str,
    location: str,
    tables: Sequence[str] | str,
    spark: Mapping[str, Any],
    *,
    database: str | None = None,
    **beside: Any,
) -> Any:
    """Build the task that builds tables of a target again.

    :param database: another connection to a target database
    :param beside: ``to``, ``batch`` and ``time``, of tables in a lakehouse
    :raises ConfigError: of a database something of these is said
    """
    common: dict[str, Any] = {
        "task_id": "rebuild", "definition": access.definition, "tables": tables,
        "state_conn_id": access.state_conn_id, "storage_conn_id": access.storage_conn_id,
    }  # fmt: skip
    if target != TARGET:
        from airflow_provider_cdc.operators.rebuild_tables import RebuildTablesOperator

        return RebuildTablesOperator(target=target, location=location, **common, **beside, **spark)
    from airflow_provider_cdc.operators.rebuild_database import RebuildDatabaseOperator

    if any(value not in (None, "") for value in beside.values()):
        raise ConfigError(
            "Tables of a database are rebuilt in place, as of the last batch.",
            safe=UNTOUCHED,
            remedy="omit --to, --batch and --time",
        )
    conn_id, sink = database_of(access, location, database)
    return RebuildDatabaseOperator(conn_id=conn_id, sink=sink, **common)


__all__ = ["TITLES", "TableAction", "WorkOnTablesOperator", "build_rebuild_task", "build_verify_task"]
