"""The task that brings the tables of several connectors up to their change logs, by one Spark job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar

from airflow_provider_cdc.connector import ConnectorDefinition, refuse_secrets
from airflow_provider_cdc.core.config.secret_redaction import find_credentials
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.base.apply_job import ApplyJobOperator
from airflow_provider_cdc.operators.base.connector_apply_report import (
    ConnectorTables,
    build_connector_alias,
    secret_places,
)
from airflow_provider_cdc.operators.base.spark_job_operator import known_threads
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess, storage_options
from airflow_provider_cdc.services.connectors.text_templates import TextTemplates

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class ConnectorApplyOptions:
    """The options of one of several connectors. Options that are left out are those of the operator.

        >>> ConnectorApplyOptions(definition=billing, location="s3a://finance/{table}", profile="fast")

    The fields have the meaning of the arguments of :class:`~airflow_provider_cdc.operators.apply_changes.ApplyChangesOperator`.
    """

    definition: ConnectorDefinition
    location: str | None = None
    profile: str | None = None
    writes: str | None = None
    tables: Any = None
    threads: int | None = None
    adopt: Sequence[str] = ()
    check_crc: bool | None = None
    storage_conn_id: str | None = None


class ApplyConnectorsOperator(TextTemplates, ApplyJobOperator):
    """Submits one Spark job that applies new batches of the change logs of several connectors.

    There is one JVM for all of them, instead of one for each.

    Each connector is applied as by its own operator, with its own report, and if the job is continuous, with its own turns: a task that applies
    only one of them takes this one over, and leaves the others. Tables that fail, a change log that is damaged, or a storage that is
    gone keep none of the other connectors; the task fails at its end, and names them.

        >>> ApplyConnectorsOperator(
        ...     task_id="apply",
        ...     connectors=[shop, ConnectorApplyOptions(definition=billing, location="s3a://finance/{table}")],
        ...     location="s3a://lake/{connector}/{database}/{table}",
        ... )

    Asset events are those of ``ApplyChangesOperator``. They come with the success of the task; if a connector has failed, with that of its next try.
    Returns ``{"target", "events", "seconds", "connectors"}``, where ``connectors`` has by name the result of ``ApplyChangesOperator``, with 10
    tables instead of 50.

    Secret storage options of each connector reach the job through its environment, never through its command line.

    :param connectors: definitions, or :class:`ConnectorApplyOptions`, where one differs from the others; changelog, location and adopt are templated
    :param location: where tables are, of all connectors that name no other place, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``
    :param target: kind of all tables, ``delta`` or ``iceberg``
    :param profile: as of ``ApplyChangesOperator``, like ``writes``, ``tables`` (rules), ``check_crc`` and ``storage_conn_id``: of all connectors that
        say nothing else
    :param threads: tables of one connector worked on at the same time
    :param run_for: continue for so long, in seconds or as a timedelta; without it, apply pending batches once, of those connectors that have anything new
    :param state_conn_id: Airflow connection to the state tables, which get the metrics (templated)
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    :raises ConfigError: something that is known now cannot be used, or a connector is there twice
    """

    template_fields: Sequence[str] = (*ApplyJobOperator.template_fields, "connectors", "state_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **ApplyJobOperator.template_fields_renderers, "connectors": "json",
    }  # fmt: skip
    TEXTS = ("state_conn_id",)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        connectors: Sequence[ConnectorDefinition | ConnectorApplyOptions],
        location: str | None = None,
        target: str = "delta",
        profile: str = "compatible",
        writes: str = "auto",
        tables: Any = (),
        threads: int = 2,
        check_crc: bool = False,
        run_for: float | timedelta | None = None,
        conn_id: str = "spark_default",
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        common: dict[str, Any] = {
            "location": location, "profile": profile, "writes": writes, "tables": tables, "threads": threads, "check_crc": check_crc,
            "storage_conn_id": storage_conn_id,
        }  # fmt: skip
        all_options = [
            connector if isinstance(connector, ConnectorApplyOptions) else ConnectorApplyOptions(definition=connector)
            for connector in connectors
        ]
        by_name = {options.definition.name: _checked(options, common) for options in all_options}
        if not all_options or len(by_name) < len(all_options):
            raise ConfigError(
                "ApplyConnectorsOperator needs at least one connector, and each connector only once.",
                where=f"given: {', '.join(options.definition.name for options in all_options) or 'none'}",
                remedy="use a separate operator for each target of a connector",
            )
        kwargs.setdefault("name", "cdc-apply-connectors")
        kwargs["outlets"] = [*(kwargs.get("outlets") or []), *map(build_connector_alias, by_name)]
        super().__init__(target=target, conn_id=conn_id, **kwargs)
        self.state_conn_id = state_conn_id
        self._set_run_for(run_for)
        self.check_parameters()
        self._options_by_name = by_name
        self._submitted: Sequence[ConnectorTables] = ()
        self.connectors: list[dict[str, Any]] = [
            {
                "connector": name, "changelog": options.definition.changelog, "changelog_options": dict(options.definition.changelog_options),
                "location": options.location, "adopt": list(options.adopt), "storage_conn_id": options.storage_conn_id,
            }
            for name, options in by_name.items()
        ]  # fmt: skip
        """Rendered fields; the rest is in ``_options_by_name``: rules for tables may have braces of their own."""

    def _connectors(self) -> list[ConnectorTables]:
        return [
            ConnectorTables(
                self._access(rendered), self.target, rendered["location"], self._options_by_name[rendered["connector"]].tables,
                rendered["adopt"], _SHOWN, self.log, memory=rendered["connector"],
            )
            for rendered in self.connectors
        ]  # fmt: skip

    def _connector_names(self) -> list[str]:
        return [*self._options_by_name]

    def _access(self, rendered: dict[str, Any]) -> ConnectorAccess:
        """Return the connector with rendered fields.

        :raises ConfigError: a template has put a secret into a field that is shown
        """
        definition = self._options_by_name[rendered["connector"]].definition
        rendered_definition = replace(
            definition, changelog=rendered["changelog"], changelog_options=rendered["changelog_options"]
        )
        refuse_secrets(rendered_definition)
        return ConnectorAccess(
            rendered_definition, "", self.state_conn_id, storage_conn_id=rendered["storage_conn_id"] or None
        )

    def _tell_job(self, connectors: Sequence[ConnectorTables], *more: str) -> None:
        self._submitted = connectors
        job_arguments = [
            argument
            for connector in connectors
            for argument in ("--apply", json.dumps(self._spec(connector), ensure_ascii=False))
        ]
        self._prepare_job("apply_connectors.py", *job_arguments, "--target", self.target, *more)

    def _spec(self, connector: ConnectorTables) -> dict[str, Any]:
        """Build the specification of a connector that the job gets."""
        options = self._options_by_name[connector.connector_name]
        specification = {
            "connector": connector.connector_name, "changelog": connector.access.definition.changelog, "location": connector.location, "profile": options.profile,
            "writes": options.writes, "threads": options.threads,
        }  # fmt: skip
        more = {
            "tables": json.loads(connector.rules.format_rules()),
            "adopt": connector.adopt,
            "check_crc": options.check_crc,
        }
        return specification | {name: value for name, value in more.items() if value}

    def _storage_options(self) -> dict[str, Any]:
        """By connector."""
        options_by_connector = {
            connector.connector_name: {
                **connector.access.definition.changelog_options,
                **storage_options(connector.access.storage_conn_id),
            }
            for connector in self._submitted
        }
        return {name: options for name, options in options_by_connector.items() if options}

    def _with_secrets(self) -> list[str]:
        shown = super()._with_secrets()
        for rendered in self.connectors:
            name = rendered["connector"]
            shown += [f"location of {name}"] if find_credentials("location.url", rendered["location"]) else []
            shown += [f"{text} of {name}" for text in secret_places(self._options_by_name[name].tables)]
        return shown

    def _result(self, done: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "target": self.target,
            "events": sum(result["events"] for result in done),
            "seconds": max(result["seconds"] for result in done),
            "connectors": {result["connector"]: result for result in done},
        }


def _checked(options: ConnectorApplyOptions, common: dict[str, Any]) -> ConnectorApplyOptions:
    """With what all have in common where it says nothing else.

    :raises ConfigError: something cannot be used
    """
    from airflow_provider_cdc.targets.lake.formats import known_profile, known_writes

    left_out = {name: value for name, value in common.items() if getattr(options, name) is None}
    whole = replace(options, **left_out)
    if not whole.location:
        raise ConfigError(
            f"The tables of connector {options.definition.name} have no location.",
            remedy='give a location for all connectors, such as location="s3a://lake/{connector}/{database}/{table}", or one for this connector in ConnectorApplyOptions',
        )
    refuse_secrets(whole.definition)
    known_profile(whole.profile)
    known_writes(whole.writes)
    known_threads(whole.threads)
    return replace(whole, tables=TableRules.parse(whole.tables))
