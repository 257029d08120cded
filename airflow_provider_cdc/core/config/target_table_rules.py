"""Rules for target tables: the user's choices for each table that changes are applied to, by patterns over the source's tables.

    >>> rules = TableRules.parse([
    ...     {"tables": r"shop\\.audit_.*", "mode": "log"},
    ...     {"tables": r"shop\\.customers", "mode": "history", "columns": {"drop": ["password"]}},
    ... ])
    >>> rules.of(TableId(namespace="shop", name="customers")).mode
    'history'

Rules are looked at in their order, and **the first one that matches a table is its rule, as a whole**: rules are not merged. A table that none
matches is kept as it would be without rules.

This module is imported at DAG parse: it must stay light. Names of columns are checked when a job knows the tables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflow_provider_cdc.core.config import row_routing_rules, target_column_rules
from airflow_provider_cdc.core.config.name_suggestions import describe_unknown_name, wrong_names
from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.core.config.row_routing_rules import AGGREGATE, Otherwise, Outbox, RouteStep, Steps
from airflow_provider_cdc.core.config.target_column_rules import ColumnRules, Names
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId

Mode = Literal["current", "log", "soft_delete", "history"]
TypeChanges = Literal["rewrite", "new_column", "stop"]
DroppedColumns = Literal["keep", "drop"]
OF_MODE: Mapping[str, Mapping[str, str]] = {
    "current": {},
    "log": {"_op": "op", "_seq": "seq", "_commit_ts": "commit_ts", "_unavailable": "unavailable"},
    "soft_delete": {},
    "history": {},
}
"""Mode → the columns that its tables have, and their content."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "current": (),
    "log": (),
    "soft_delete": ("_is_deleted", "_deleted_at"),
    "history": ("_valid_from", "_valid_to", "_is_current", "_seq", "_seq_to"),
}
"""Mode → the columns that it keeps up to date itself."""
_TO_COME = frozenset({"type_changes", "dropped_columns"})
"""Settings of a rule about later changes at the source. They do not decide the rows that are there."""
_PLACES = ("connector", "topic", "database", "table")


class TableRule(BaseModel):
    """The rule by which the tables that a pattern matches are kept.

    :param tables: patterns of ``<database>.<table>``, as in ``table.include.list``: a list, or a text with commas
    :param location: where the tables are; that of the job, if there is none. It may have named groups of the pattern, too
    :param mode: ``current``: the table equals the source. ``log``: a row for each event. ``soft_delete``: rows that the source has deleted
        stay, marked. ``history``: a row for each version of a row
    :param columns: rules for the columns
    :param filter: a SQL condition over the source's columns; rows for which it is not true are not in the table
    :param shard: one column and a text as in ``constant``, for tables that several source tables share: the column is part of their key
    :param partition_by: columns of the table, or transforms that its kind knows: ``days(created_at)``
    :param cluster_by: columns by which rows are kept together
    :param route: steps by which rows are brought to several tables, by their values; see :class:`airflow_provider_cdc.core.config.row_routing_rules.RouteStep`
    :param otherwise: destination of rows that no step takes. ``default``: the table that they would have without a route. ``drop``: they are in no
        table. ``error``: nothing is written. Of an outbox ``error`` unless it says ``drop``
    :param outbox: the table is an outbox; see :class:`airflow_provider_cdc.core.config.row_routing_rules.Outbox`
    :param type_changes: when a column gets a type that does not hold its old values. ``rewrite``: the table is written again, with the values that the
        source's table is read again with, or equal ones of the new type. ``new_column``: the table's column stays as it is, and the source's
        continues in a new one, ``amount__v_string``. ``stop``: the apply stops for this table
    :param dropped_columns: treatment of a column that the source drops. ``keep``: it stays, with the values that it had. ``drop``: it goes from the
        table, too
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tables: Patterns = Field(min_length=1)
    location: str | None = None
    mode: Mode = "current"
    columns: ColumnRules = Field(default_factory=ColumnRules)
    filter: str | None = None
    shard: dict[str, str] = Field(default_factory=dict, max_length=1)
    partition_by: Names = ()
    cluster_by: Names = ()
    type_changes: TypeChanges = "rewrite"
    dropped_columns: DroppedColumns = "keep"
    route: Steps = ()
    otherwise: Otherwise | None = None
    outbox: Outbox | None = None

    @property
    def is_routed(self) -> bool:
        """Return whether the rows of one source table are in several tables."""
        return bool(self.route) or self.outbox is not None

    @property
    def table_locations(self) -> list[str]:
        """Locations that the rule names for its tables."""
        return [*([self.location] if self.location else []), *(step.location for step in self.route)]

    @property
    def unrouted_rows_action(self) -> Otherwise:
        """The treatment of rows that no step of the route takes."""
        return self.otherwise or ("default" if self.outbox is None else "error")

    @property
    def constant_columns(self) -> dict[str, str]:
        """Columns with a text that is the same in all rows of a source table."""
        return {**self.shard, **self.columns.constant}

    @property
    def metadata_columns(self) -> dict[str, str]:
        """Columns that describe events: those of the mode, then the requested ones."""
        return {**OF_MODE[self.mode], **self.columns.metadata}

    @property
    def is_plain(self) -> bool:
        """Return whether the table is as it would be without this rule, but for its location."""
        return self.to_comparable_form() == {}

    def to_comparable_form(self) -> dict[str, Any]:
        """Return the settings that decide the rows and the layout of a table, in a form that can be compared and stored.

        Settings about later changes at the source are not part of it: they may be changed for a table that is there.
        """
        left_out = {"tables", "location", "route", "otherwise", "outbox", *_TO_COME}
        if self.outbox is not None:
            left_out |= {"mode", "columns"}  # they follow from it
        document = self.model_dump(exclude=left_out, exclude_defaults=True, mode="json")
        document["route"] = [step.to_comparable_form() for step in self.route]
        meaning = {name: value for name, value in document.items() if value}
        return meaning if self.outbox is None else {**meaning, "outbox": self.outbox.to_comparable_form()}


PLAIN = TableRule(tables=(".*",))
"""The rule of tables that no rule matches."""


@dataclass(frozen=True, slots=True)
class MatchedRule:
    """A rule, and the texts of the named groups of its pattern in a table's name."""

    rule: TableRule
    groups: Mapping[str, str]

    def build_constants(self, connector: str, topic: str, table: TableId) -> dict[str, str]:
        """Columns with a text that is the same in all rows of a source table, and this text."""
        names = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
        return {name: text.format(**names, **self.groups) for name, text in self.rule.constant_columns.items()}


class TableRules:
    """The rules of a target, in their order."""

    def __init__(self, rules: Iterable[TableRule] = ()) -> None:
        self.rules = tuple(rules)
        self._patterns = [[re.compile(p, re.IGNORECASE) for p in rule.tables] for rule in self.rules]

    @classmethod
    def parse(cls, given: Any) -> TableRules:
        """Check rules.

        :param given: a list of mappings or :class:`TableRule`; or a text with such a list in JSON or YAML; or the path of a file with it
        :raises ConfigError: something in them cannot be used; all mistakes are named at once
        """
        if isinstance(given, TableRules):
            return given
        entries = _read(given) if isinstance(given, (str, Path)) else given
        if isinstance(entries, Mapping) and set(entries) == {"tables"} and isinstance(entries["tables"], list):
            entries = entries["tables"]
        if entries is None:
            entries = ()
        if not isinstance(entries, Sequence) or not all(isinstance(rule, (Mapping, TableRule)) for rule in entries):
            raise _refused(["table rules must be a list of mappings"])
        rules, wrong = [], []
        for number, rule in enumerate(entries, start=1):
            try:
                parsed = rule if isinstance(rule, TableRule) else TableRule.model_validate(dict(rule))
                rules.append(parsed)
                wrong += [f"rule {number}: {text}" for text in _contradictions(parsed)]
            except ValidationError as e:
                wrong += [f"rule {number}: {_explained(error)}" for error in e.errors()]
        if wrong:
            raise _refused(wrong)
        return cls(rules)

    def select_rule(self, table: TableId) -> TableRule:
        """Return the rule of a table of the source; :data:`PLAIN` if none matches it."""
        return self.match_table(table).rule

    def match_table(self, table: TableId) -> MatchedRule:
        """Return the first rule that matches, with the named groups of its pattern."""
        names = dict.fromkeys((str(table), table.full_name))
        for rule, patterns in zip(self.rules, self._patterns, strict=True):
            for pattern in patterns:
                for name in names:
                    if match := pattern.fullmatch(name):
                        return MatchedRule(rule, {k: v or "" for k, v in match.groupdict().items()})
        return MatchedRule(PLAIN, {})

    def find_unused_patterns(self, tables: Iterable[TableId]) -> list[str]:
        """Patterns that match none of some tables, or are never reached for them."""
        used = {id(self.select_rule(table)) for table in tables}
        return [", ".join(rule.tables) for rule in self.rules if id(rule) not in used]

    def format_rules(self) -> str:
        """Format the rules as JSON; ``TableRules.parse(text)`` gives the same ones."""
        rules = [rule.model_dump(exclude_defaults=True, by_alias=True, mode="json") for rule in self.rules]
        return json.dumps(rules, ensure_ascii=False)

    def compute_digest(self) -> str:
        """Return a text that differs between different rules; empty if there are none."""
        return hashlib.sha256(self.format_rules().encode()).hexdigest()[:16] if self.rules else ""

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableRules) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.format_rules())


NO_RULES = TableRules()


def _read(source: str | Path) -> Any:
    """Rules of a file, or of a text."""
    text, where = str(source), "the value"
    if isinstance(source, Path) or not (text.lstrip().startswith(("[", "-", "{", "tables:")) or "\n" in text):
        try:
            text, where = Path(source).read_text(encoding="utf-8"), f"the file {source}"
        except OSError as e:
            raise _refused([f"the file {source} cannot be read: {e.strerror}"]) from e
    try:
        return json.loads(text)
    except ValueError as e:
        wrong = str(e)
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise _refused([f"{where} is not JSON ({wrong}); to use YAML, install the package PyYAML"]) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise _refused([f"{where} is neither JSON nor YAML: {e}"]) from None


def _contradictions(rule: TableRule) -> list[str]:
    """List the settings of a rule that contradict each other, and names that are unknown."""
    wrong, columns = [], rule.columns
    named = [set(re.compile(pattern).groupindex) for pattern in rule.tables]
    # a text is filled in for each table, whichever pattern matches it
    groups = set.intersection(*named)
    ours = {
        *_PLACES,
        *((row_routing_rules.VALUE,) if rule.route else ()),
        *((AGGREGATE,) if rule.outbox is not None else ()),
    }
    if taken := sorted(set.union(*named) & ours):
        wrong.append(f"tables: a group cannot have the name {taken[0]}, which is reserved")
    valid = (*_PLACES, *sorted(groups))
    texts = {f"shard.{k}": v for k, v in rule.shard.items()} | {
        f"columns.constant.{k}": v for k, v in columns.constant.items()
    }
    for name, text in texts.items():
        wrong += [f"{name}: {problem}" for problem in wrong_names(text, valid)]
    of_an_outbox = () if rule.outbox is None else (AGGREGATE, "table", "topic")
    of_location = wrong_names(rule.location or "", (*dict.fromkeys((*valid, *of_an_outbox)),), exact=of_an_outbox)
    wrong += [f"location: {problem}" for problem in of_location]
    wrong += _wrong_routes(rule, valid, located=not of_location)
    wrong += target_column_rules.find_column_contradictions(columns, rule.shard)
    defined_names = [
        *rule.constant_columns,
        *columns.computed,
        *rule.metadata_columns,
        *FLAGS[rule.mode],
        *columns.rename.values(),
    ]
    twice = sorted({name for name in defined_names if [n.lower() for n in defined_names].count(name.lower()) > 1})
    wrong += [f"columns: {name} is defined twice" for name in twice]
    wrong += [
        f"columns: {name!r} begins with __cdc_, which is reserved for the columns of the apply job"
        for name in defined_names
        if name.lower().startswith("__cdc_")
    ]
    if rule.mode != "log" and "unavailable" in columns.metadata.values():
        wrong.append(
            "columns.metadata: unavailable is only valid with mode log; tables of other modes keep the values that events leave out"
        )
    if rule.partition_by and rule.cluster_by:
        wrong.append("partition_by and cluster_by cannot be set both")
    if rule.type_changes == "new_column" and (rule.shard or rule.is_routed):
        wrong.append(
            "type_changes: new_column cannot be used with shard, route or outbox: the columns of a table must come from one whole source table"
        )
    if rule.dropped_columns == "drop" and rule.mode in ("log", "history"):
        wrong.append(
            f"dropped_columns: drop cannot be used with mode {rule.mode}, because its tables keep earlier values; leave it out, or use another mode"
        )
    if rule.dropped_columns == "drop" and (rule.shard or rule.is_routed):
        wrong.append(
            "dropped_columns: drop cannot be used with shard, route or outbox: the columns of a table must come from one whole source table"
        )
    if rule.filter is not None and not rule.filter.strip():
        wrong.append("filter: the filter is empty")
    return wrong


def _wrong_routes(rule: TableRule, valid: Sequence[str], *, located: bool) -> list[str]:
    """
    :param located: whether nothing is wrong with the names in the rule's location
    """
    wrong = row_routing_rules.find_route_contradictions(rule.route, valid)
    if rule.route and rule.shard:
        wrong.append("route and shard cannot be set both")
    if rule.otherwise is not None and not rule.is_routed:
        wrong.append("otherwise: the rule has no route, so no other rows exist")
    if rule.outbox is None:
        return wrong
    set_too = [name for name in ("mode", "columns", "shard", "route") if name in rule.model_fields_set]
    wrong += row_routing_rules.of_an_outbox(rule.outbox, rule.location if located else None, set_too, valid)
    if rule.otherwise == "default":
        wrong.append("otherwise: events without an aggregate type have no table; use drop or error")
    return wrong


def _explained(error: Any) -> str:
    """Put one mistake into words."""
    path = ".".join(str(part + 1 if isinstance(part, int) else part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        *parents, name = error["loc"]
        where = f"{'.'.join(str(p + 1 if isinstance(p, int) else p) for p in parents)}: " if parents else ""
        if parents[:1] == ["outbox"] and len(parents) == 1:
            return f"{where}{row_routing_rules.explain_missing_property(str(name))}"
        return f"{where}{describe_unknown_name(str(name), list(_MODELS.get(str(parents[0]) if parents else '', TableRule).model_fields))}"
    if error["type"] == "missing":
        return f"{path} is missing"
    if error["type"] == "literal_error":
        return f"{path}: {describe_unknown_name(str(error['input']), _VALUES.get(path, ()))}"
    if path == "tables" and error["type"] == "too_short":
        return "tables is empty"
    if path == "shard" and error["type"] == "too_long":
        return "shard: use exactly one column"
    return f"{path}: {error.get('ctx', {}).get('error') or error['msg']}"


_MODELS: Mapping[str, type[BaseModel]] = {"columns": ColumnRules, "route": RouteStep}
"""Option → its own options."""
_VALUES = {
    "mode": get_args(Mode),
    "type_changes": get_args(TypeChanges),
    "dropped_columns": get_args(DroppedColumns),
    **row_routing_rules.VALUES,
}
"""Option → the values that it may have."""


def _refused(wrong: Sequence[str]) -> ConfigError:
    return ConfigError(
        "The table rules cannot be used:\n" + "\n".join(f"  {text}" for text in wrong),
        safe="No table was changed.",
        remedy='use rules such as [{"tables": "shop\\\\.(orders|lines)", "mode": "history", "columns": {"drop": ["note"]}}]; see docs/targets/rules.md',
    )
