"""Rules that bring the rows of one source table to several tables: routes by content, and the outbox pattern.

The words of a route are ours; those of the outbox are Debezium's (Outbox Event Router).

This module is imported at DAG parse: it must stay light. SQL and names of columns are checked when a job knows the tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from airflow_provider_cdc.core.config.name_suggestions import describe_unknown_name, names_in, wrong_names

Otherwise = Literal["default", "drop", "error"]
"""The destination of a row that no step of a route takes: the table that it would have without the route, none, or an error."""
VALUE = "value"
"""The name in a step's location that stands for the value of its ``by``."""
ROUTED = "${routedByValue}"
"""The same in ``route.topic.replacement``."""
AGGREGATE = "aggregatetype"
"""The same in the location of an outbox."""
Invalid = Literal["warn", "error", "fatal"]


class RouteStep(BaseModel):
    """A step of a route. The first step that takes a row says where it is.

    :param when: a SQL condition over the source's columns; without it, the step takes each row
    :param by: SQL over the source's columns, whose value as a text is ``{value}`` in the location. A row for which it is NULL, or an empty text, is
        not taken
    :param location: where the rows are that the step takes, with ``{database}``, ``{table}``, ``{topic}``, ``{connector}``, named groups of the
        rule's pattern, and ``{value}``
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: str | None = None
    by: str | None = None
    location: str

    def to_comparable_form(self) -> dict[str, str]:
        """Return which rows it takes."""
        return {name: text for name, text in (("when", self.when), ("by", self.by)) if text is not None}


def _steps(value: Any) -> Any:
    """Make a list of one step alone."""
    steps = (value,) if isinstance(value, (Mapping, RouteStep)) else value
    if not isinstance(steps, (list, tuple)) or not all(isinstance(step, (Mapping, RouteStep)) for step in steps):
        raise ValueError(f"{value!r} is neither a step (with when, by and location) nor a list of steps")
    return tuple(steps)


Steps = Annotated[tuple[RouteStep, ...], BeforeValidator(_steps)]


class AdditionalColumn(BaseModel):
    """A column of the outbox that its tables have, too.

    :param alias: its name there
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    placement: Literal["header", "envelope"]
    alias: str

    def __str__(self) -> str:
        return f"{self.column}:{self.placement}:{self.alias}"


def _additional(value: Any) -> Any:
    """``"type:header:eventType, tenant:envelope"``, or a list of such texts."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise ValueError(f"{value!r} is not a list of column:placement:alias")
    return tuple(part if isinstance(part, (AdditionalColumn, Mapping)) else _placed(part) for part in parts)


def _placed(text: Any) -> AdditionalColumn:
    # a name of a column may have colons, too
    match = re.fullmatch(r"(.+?):\s*(header|envelope|partition)\s*(?::(.*))?", str(text))
    parts = [part for part in match.groups() if part is not None] if match else str(text).split(":")
    column, *rest = [part.strip() for part in parts]
    placement = rest[0] if rest else ""
    if not column or not 1 <= len(rest) <= 2 or not rest[-1]:
        raise ValueError(f"{text!r} is not column:placement or column:placement:alias")
    if placement == "partition":
        raise ValueError(
            f"{text!r}: tables have no topic partitions; use partition_by of the rule to partition the tables"
        )
    if placement not in ("header", "envelope"):
        raise ValueError(f"{text!r}: {describe_unknown_name(placement, ('header', 'envelope'))}")
    return AdditionalColumn(
        column=column,
        placement=cast("Literal['header', 'envelope']", placement),
        alias=rest[-1] if len(rest) == 2 else column,
    )


class Outbox(BaseModel):
    """The rule by which events of an outbox table become tables, one for each aggregate type.

    Events are only added to these tables.

    The properties are those of Debezium's Outbox Event Router, with its defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    id: str = Field("id", alias="table.field.event.id", min_length=1)
    key: str = Field("aggregateid", alias="table.field.event.key", min_length=1)
    type: str | None = Field(None, alias="table.field.event.type", min_length=1)
    payload: str = Field("payload", alias="table.field.event.payload", min_length=1)
    timestamp: str | None = Field(None, alias="table.field.event.timestamp", min_length=1)
    additional: Annotated[tuple[AdditionalColumn, ...], BeforeValidator(_additional)] = Field(
        (), alias="table.fields.additional.placement"
    )
    expand: bool = Field(False, alias="table.expand.json.payload")
    invalid: Invalid = Field("warn", alias="table.op.invalid.behavior")
    by: str = Field("aggregatetype", alias="route.by.field", min_length=1)
    replacement: str = Field(f"outbox.event.{ROUTED}", alias="route.topic.replacement", min_length=1)

    def list_columns(self, there: Sequence[str]) -> list[tuple[str, str, str]]:
        """Property, column of the outbox, and its name in the tables.

        :param there: columns of the outbox: ``type`` is one of the event's fields if the outbox has it
        """
        columns = [("table.field.event.id", self.id, "id"), ("table.field.event.key", self.key, "key")]
        if self.type is not None or "type" in {name.lower() for name in there}:
            columns.append(("table.field.event.type", self.type or "type", "type"))
        columns.append(("table.field.event.payload", self.payload, "payload"))
        if self.timestamp is not None:
            columns.append(("table.field.event.timestamp", self.timestamp, "timestamp"))
        return columns + [
            ("table.fields.additional.placement", column.column, column.alias) for column in self.additional
        ]

    def format_topic(self, value: str) -> str:
        """Return the name of the table of an aggregate type.

        >>> Outbox().format_topic("order")
        'outbox.event.order'
        """
        return self.replacement.replace(ROUTED, value)

    def to_comparable_form(self) -> dict[str, Any]:
        """Return the settings that decide the rows of its tables."""
        return self.model_dump(by_alias=True, exclude={"invalid", "replacement"}, exclude_defaults=True, mode="json")


_NOT_HERE = {
    "route.topic.regex": "use a step of route or a computed column at the source to convert a value to another name",
    "route.tombstone.on.empty.payload": "tables have no tombstones; an event without a payload is a row with NULL",
    "table.field.event.schema.version": "tables have columns and no versions of message schemas",
    "table.fields.additional.error.on.missing": "a column that the outbox never had is always an error; a column that was dropped is not",
    "table.json.payload.null.behavior": "payload_fields contains members with the value null, as NULL",
    "tracing.span.context.field": "tracing is not supported; table.fields.additional.placement keeps the column",
    "tracing.operation.name": "tracing is not supported",
    "tracing.with.context.field.only": "tracing is not supported; filter selects rows",
}
"""Properties of the Outbox Event Router that are not here → why, or the replacement."""


def explain_missing_property(name: str) -> str:
    """Why an outbox has no property of this name."""
    if why := _NOT_HERE.get(name):
        return f"{name} is not supported: {why}"
    return describe_unknown_name(name, [str(field.alias) for field in Outbox.model_fields.values()])


VALUES: Mapping[str, tuple[str, ...]] = {
    "otherwise": get_args(Otherwise),
    "outbox.table.op.invalid.behavior": get_args(Invalid),
}
"""Option → the values that it may have."""


def find_route_contradictions(route: Sequence[RouteStep], valid: Sequence[str]) -> list[str]:
    """List the contradictions in the steps of a route.

    :param valid: names that their locations may have in braces, without :data:`VALUE`
    """
    wrong = []
    for number, step in enumerate(route, start=1):
        where = f"route: step {number}"
        # a value that is cut, or filled up, could have the place of another one
        if wrongly := wrong_names(step.location, (*valid, VALUE), exact=(VALUE,)):
            wrong += [f"{where}: location: {text}" for text in wrongly]
            continue
        fills = VALUE in names_in(step.location)
        if step.when is None and step.by is None and not 1 < number == len(route):
            wrong.append(
                f"{where} has neither when nor by and takes every row: only the last of several steps may do so"
            )
        if step.by is None and fills:
            wrong.append(f"{where}: location contains {{{VALUE}}}, but the step has no by to set it")
        if step.by is not None and not fills:
            wrong.append(f"{where}: location does not contain {{{VALUE}}}, so all values of by would share one table")
        texts = {**step.to_comparable_form(), "location": step.location}
        wrong += [f"{where}: {name} is empty" for name, text in texts.items() if not text.strip()]
    places = [step.location for step in route]
    twice = sorted({place for place in places if places.count(place) > 1})
    return wrong + [
        f"route: two steps have the location {place}: use one step, and join the conditions with OR" for place in twice
    ]


def of_an_outbox(outbox: Outbox, location: str | None, set_too: Sequence[str], valid: Sequence[str]) -> list[str]:
    """List the contradictions in a rule with an outbox.

    :param set_too: options of the rule that have a meaning of their own in it
    """
    wrong = [f"outbox: {name} cannot be set together with outbox" for name in set_too]
    if ROUTED not in outbox.replacement:
        wrong.append(
            f"outbox: route.topic.replacement does not contain {ROUTED}, so all aggregate types would share one table"
        )
    if location is not None and not {"table", "topic", AGGREGATE} & names_in(location):
        names = "{table}, {topic} or {" + AGGREGATE + "}"
        wrong.append(f"outbox: location contains none of {names}, so all aggregate types would share one table")
    aliases = [alias for _, _, alias in outbox.list_columns(())]
    twice = sorted({a for a in aliases if [n.lower() for n in aliases].count(a.lower()) > 1})
    return wrong + [f"outbox: its tables would have two columns named {name}" for name in twice]
