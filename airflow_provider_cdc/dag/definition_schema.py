"""Contents of a file that defines a connector and its DAG.

They are the arguments of :func:`~airflow_provider_cdc.dag.connector_dag.cdc_dag`, by the same names.

Types are strict, so that a wrong one is reported with the file, and does not come up when Airflow stores the DAGs of all files together. Arguments that only
code can give (callbacks, assets, Python objects) are left out. This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from airflow_provider_cdc.core.config.name_suggestions import describe_unknown_name
from airflow_provider_cdc.dag.definition_parser import ValuePath, type_names

_DURATION = re.compile(
    r"\s*(?:(?P<days>\d+)\s*d)?\s*(?:(?P<hours>\d+)\s*h)?\s*(?:(?P<minutes>\d+)\s*m)?\s*(?:(?P<seconds>\d+)\s*s)?\s*"
)
_LONGEST_S = 10 * 366 * 86400


def _duration(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("must be a number of seconds, or a duration such as 90s, 10m, 6h, 1d 12h")
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        parts = {name: int(text) for name, text in match.groupdict().items() if text} if match else {}
        if not parts or any(number > _LONGEST_S for number in parts.values()):
            raise ValueError("must be a number of seconds, or a duration such as 90s, 10m, 6h, 1d 12h")
        value = timedelta(**parts).total_seconds()
    if not (math.isfinite(value) and 0 < value <= _LONGEST_S):
        raise ValueError("must be more than 0 and at most ten years")
    return timedelta(seconds=value)


def _moment(value: Any) -> Any:
    try:
        if not isinstance(value, str):
            raise ValueError
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if not 1970 <= moment.astimezone(UTC).year <= 9000:
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError("must be a time such as 2025-01-31 or 2025-01-31T06:00:00+00:00") from None
    return moment


def _schedule(value: Any) -> Any:
    if value is None or (isinstance(value, str) and not _DURATION.fullmatch(value)):
        return value
    return _duration(value)


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Schedule = Annotated[str | timedelta | None, BeforeValidator(_schedule)]
Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=250)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, le=_LONGEST_S)]


class _FormPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TaskPart(_FormPart):
    """``default_args``: arguments of all tasks."""

    owner: Name | None = None
    retries: Count | None = None
    retry_delay: Duration | None = None
    max_retry_delay: Duration | None = None
    execution_timeout: Duration | None = None
    pool: Name | None = None
    pool_slots: Positive | None = None
    priority_weight: Count | None = None
    weight_rule: Literal["downstream", "upstream", "absolute"] | None = None
    queue: Name | None = None
    executor: Name | None = None
    depends_on_past: bool | None = None


class ApplyPart(TaskPart):
    """``group.apply``: arguments of the operator that applies, and of Airflow's own that submits jobs to Spark."""

    profile: Name | None = None
    writes: Name | None = None
    threads: Positive | None = None
    adopt: list[Text] | Text | None = None
    check_crc: bool | None = None
    run_for: Duration | None = None
    conf: dict[str, str | int | float | bool] | None = None
    env_vars: dict[str, str] | None = None
    jars: Text | None = None
    packages: Text | None = None
    exclude_packages: Text | None = None
    repositories: Text | None = None
    files: Text | None = None
    py_files: Text | None = None
    archives: Text | None = None
    driver_class_path: Text | None = None
    driver_memory: Name | None = None
    executor_memory: Name | None = None
    executor_cores: Positive | None = None
    total_executor_cores: Positive | None = None
    num_executors: Positive | None = None
    keytab: Text | None = None
    principal: Text | None = None
    proxy_user: Text | None = None
    properties_file: Text | None = None
    spark_binary: Text | None = None
    yarn_queue: Text | None = None
    deploy_mode: Literal["client", "cluster"] | None = None
    status_poll_interval: Positive | None = None
    verbose: bool | None = None


class GroupPart(_FormPart):
    """``group``: arguments of :func:`~airflow_provider_cdc.dag.connector_dag.cdc_task_group`."""

    target: Name | None = None
    group_id: Name | None = None
    prefix_group_id: bool | None = None
    adopt: bool | None = None
    state_conn_id: Name | None = None
    storage_conn_id: Name | None = None
    spark_conn_id: Name | None = None
    wait: bool | None = None
    poll_interval: Seconds | None = None
    wait_timeout: Duration | None = None
    retry_after: Duration | None = None
    run_for: Duration | None = None
    snapshot_job: dict[str, Any] | None = None
    apply: ApplyPart | None = None


class ConnectorPart(_FormPart):
    """Arguments of :class:`~airflow_provider_cdc.connector.ConnectorDefinition`."""

    name: Name
    source: Name
    changelog: Annotated[str, Field(min_length=1, max_length=10_000)]
    properties: dict[str, Any] = {}
    changelog_options: dict[str, Any] = {}


class DagPart(_FormPart):
    """Arguments of Airflow's ``DAG``."""

    description: Text | None = None
    doc_md: Text | None = None
    dag_display_name: Name | None = None
    tags: list[Annotated[str, Field(min_length=1, max_length=100)]] | None = None
    start_date: Moment | None = None
    end_date: Moment | None = None
    catchup: bool | None = None
    max_active_runs: Positive | None = None
    max_active_tasks: Positive | None = None
    max_consecutive_failed_dag_runs: Count | None = None
    dagrun_timeout: Duration | None = None
    is_paused_upon_creation: bool | None = None
    fail_fast: bool | None = None
    owner_links: dict[str, Annotated[str, Field(max_length=500)]] | None = None
    default_args: TaskPart | None = None


class DagDefinition(ConnectorPart, DagPart):
    """A whole file."""

    conn_id: Name
    location: Text | None = None
    tables: list[dict[str, Any]] | None = None
    database: Name | None = None
    sink: dict[str, Any] | None = None
    on_spark: bool | None = None
    submit: Name | dict[str, Any] | None = None
    dag_id: Name | None = None
    schedule: Schedule = None
    continuous: bool | None = None
    group: GroupPart | None = None


_EXPECTED_TEXTS = {
    "string_type": "must be a string", "int_type": "must be a whole number", "float_type": "must be a number", "bool_type": "must be true or false",
    "dict_type": "must be a mapping", "model_type": "must be a mapping", "list_type": "must be a list", "missing": "is required",
}  # fmt: skip


def parse_definition(values: Mapping[str, Any]) -> tuple[DagDefinition | None, list[tuple[ValuePath, str]]]:
    """Check the values of a file.

    :return: the definition, or the problems with their places. Values are never named: a secret may be at the wrong place
    """
    try:
        return DagDefinition.model_validate(dict(values)), []
    except ValidationError as e:
        problems = dict.fromkeys((path, text) for path, text in _explained(e))
        return None, list(problems)


def build_arguments(part: _FormPart) -> dict[str, Any]:
    """Return the given values of a part as arguments.

    A value that is not given, or is ``null``, is left to the callee's default; but a DAG without a schedule is possible.
    """
    given_values = {name: getattr(part, name) for name in type(part).model_fields if name in part.model_fields_set}
    return {
        name: build_arguments(value) if isinstance(value, _FormPart) else value
        for name, value in given_values.items()
        if value is not None or name == "schedule"
    }


def _explained(error: ValidationError) -> Iterator[tuple[ValuePath, str]]:
    for entry in error.errors(include_url=False, include_input=True, include_context=False):
        path = tuple(entry["loc"])
        # of a value that may have several types, the last part of the place is the type
        model, depth = _part_of(path)
        path = path[:depth]
        name = ".".join(str(part) for part in path)
        if entry["type"] == "extra_forbidden":
            yield (
                path,
                f"{'.'.join(map(str, path[:-1]))}{': ' if len(path) > 1 else ''}{describe_unknown_name(str(path[-1]), sorted(model.model_fields))}",
            )
            continue
        actual = (
            "" if entry["type"] == "missing" else f", but is {type_names.get(type(entry['input']), 'something else')}"
        )
        expected = _EXPECTED_TEXTS.get(entry["type"])
        yield (
            path,
            f"{name} {expected}{actual}" if expected else f"{name}: {entry['msg'].removeprefix('Value error, ')}",
        )


def _part_of(path: ValuePath) -> tuple[type[_FormPart], int]:
    """Return the part that a place belongs to, and how much of the place are names."""
    model: type[_FormPart] = DagDefinition
    for number, name in enumerate(path, start=1):
        inner = _PARTS.get((model, str(name)))
        if inner is None:
            # below a field are keys of a mapping and numbers of a list; names of types come last
            rest = [part for part in path[number:] if isinstance(part, int)]
            return model, number + (len(rest) if rest and path[number : number + len(rest)] == tuple(rest) else 0)
        if number < len(path):
            model = inner
    return model, len(path)


_PARTS: Mapping[tuple[type[_FormPart], str], type[_FormPart]] = {
    (DagDefinition, "group"): GroupPart, (DagDefinition, "default_args"): TaskPart, (GroupPart, "apply"): ApplyPart
}  # fmt: skip
