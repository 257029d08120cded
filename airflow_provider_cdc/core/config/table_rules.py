"""Rules for target tables: what a user says about each table that changes are applied to, by patterns over the source's tables.

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

import difflib
import hashlib
import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from airflow_provider_cdc.core.config.values import Patterns
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import TableId

Mode = Literal["current", "log", "soft_delete", "history"]
TypeChanges = Literal["rewrite", "stop"]
METADATA = (
    "op", "seq", "commit_ts", "captured_ts", "transaction_id", "source", "snapshot", "unavailable", "connector", "topic", "database", "table",
)  # fmt: skip
"""What a column may tell about the last event of its row."""
OF_MODE: Mapping[str, Mapping[str, str]] = {
    "current": {},
    "log": {"_op": "op", "_seq": "seq", "_commit_ts": "commit_ts", "_unavailable": "unavailable"},
    "soft_delete": {},
    "history": {},
}
"""Mode → the columns that its tables have, and what they tell."""
FLAGS: Mapping[str, tuple[str, ...]] = {
    "current": (),
    "log": (),
    "soft_delete": ("_is_deleted", "_deleted_at"),
    "history": ("_valid_from", "_valid_to", "_is_current", "_seq", "_seq_to"),
}
"""Mode → the columns that it keeps up to date itself."""
_PLACES = ("connector", "topic", "database", "table")


def _names(value: Any) -> Any:
    found = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(part, str) and part for part in found):
        raise ValueError(f"{value!r} is not a list of names")
    if twice := sorted({name for name in found if [n.lower() for n in found].count(name.lower()) > 1}):
        raise ValueError(f"{twice[0]!r} is named twice")
    return tuple(found)


def _metadata(value: Any) -> Any:
    """``["seq"]`` means ``{"_seq": "seq"}``."""
    found = value if isinstance(value, Mapping) else {f"_{name}": name for name in _names(value)}
    for name, what in found.items():
        if what not in METADATA:
            raise ValueError(f"{name}: {_unknown(str(what), METADATA)}")
    return dict(found)


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnRules(_Strict):
    """What becomes of a table's columns.

    :param keep: only these columns of the source; all, if it is empty
    :param drop: not these
    :param rename: column of the source → its name in the table
    :param cast: column of the source → its Spark type in the table
    :param constant: column of the table → a text, in which ``{database}``, ``{table}``, ``{topic}``, ``{connector}`` and named groups of the
        rule's pattern are filled in
    :param computed: column of the table → a SQL expression over the source's columns
    :param metadata: column of the table → one of :data:`METADATA`; or a list of these, for columns called ``_op`` and so on
    """

    keep: Names = ()
    drop: Names = ()
    rename: dict[str, str] = Field(default_factory=dict)
    cast: dict[str, str] = Field(default_factory=dict)
    constant: dict[str, str] = Field(default_factory=dict)
    computed: dict[str, str] = Field(default_factory=dict)
    metadata: Annotated[dict[str, str], BeforeValidator(_metadata)] = Field(default_factory=dict)


class TableRule(_Strict):
    """How the tables that a pattern matches are kept.

    :param tables: patterns of ``<database>.<table>``, as in ``table.include.list``: a list, or a text with commas
    :param location: where the tables are; that of the job, if there is none. It may have named groups of the pattern, too
    :param mode: ``current``: the table equals the source. ``log``: a row for each event. ``soft_delete``: rows that the source has deleted
        stay, marked. ``history``: a row for each version of a row
    :param columns: what becomes of columns
    :param filter: a SQL condition over the source's columns; rows for which it is not true are not in the table
    :param shard: one column and a text as in ``constant``, for tables that several source tables share: the column is part of their key
    :param partition_by: columns of the table, or transforms that its kind knows: ``days(created_at)``
    :param cluster_by: columns by which rows are kept together
    :param type_changes: when a column gets a type that does not hold its old values. ``rewrite``: the table is written anew, with the values that the
        source's table is read again with, or equal ones of the new type. ``stop``: the apply stops for this table
    """

    tables: Patterns = Field(min_length=1)
    location: str | None = None
    mode: Mode = "current"
    columns: ColumnRules = Field(default_factory=ColumnRules)
    filter: str | None = None
    shard: dict[str, str] = Field(default_factory=dict, max_length=1)
    partition_by: Names = ()
    cluster_by: Names = ()
    type_changes: TypeChanges = "rewrite"

    @property
    def constants(self) -> dict[str, str]:
        """Columns with a text that is the same in all rows of a source table."""
        return {**self.shard, **self.columns.constant}

    @property
    def metadata(self) -> dict[str, str]:
        """Columns that tell about events: those of the mode, then those that were asked for."""
        return {**OF_MODE[self.mode], **self.columns.metadata}

    @property
    def plain(self) -> bool:
        """Whether the table is as it would be without this rule, but for its location."""
        return self.meaning() == {}

    def meaning(self) -> dict[str, Any]:
        """What decides the rows and the layout of a table, in a form that can be compared and stored.

        What it says of changes at the source to come is not part of it: it may be changed for a table that is there.
        """
        found = self.model_dump(exclude={"tables", "location", "type_changes"}, exclude_defaults=True, mode="json")
        return {name: value for name, value in found.items() if value}


PLAIN = TableRule(tables=(".*",))
"""The rule of tables that no rule matches."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A rule, and the texts of the named groups of its pattern in a table's name."""

    rule: TableRule
    groups: Mapping[str, str]


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
        found = _read(given) if isinstance(given, (str, Path)) else given
        if isinstance(found, Mapping) and set(found) == {"tables"} and isinstance(found["tables"], list):
            found = found["tables"]
        if found is None:
            found = ()
        if not isinstance(found, Sequence) or not all(isinstance(rule, (Mapping, TableRule)) for rule in found):
            raise _refused(["rules of tables are a list of mappings"])
        rules, wrong = [], []
        for number, rule in enumerate(found, start=1):
            try:
                made = rule if isinstance(rule, TableRule) else TableRule.model_validate(dict(rule))
                rules.append(made)
                wrong += [f"rule {number}: {text}" for text in _contradictions(made)]
            except ValidationError as e:
                wrong += [f"rule {number}: {_explained(error)}" for error in e.errors()]
        if wrong:
            raise _refused(wrong)
        return cls(rules)

    def of(self, table: TableId) -> TableRule:
        """The rule of a table of the source; :data:`PLAIN` if none matches it."""
        return self.match(table).rule

    def match(self, table: TableId) -> Matched:
        """The first rule that matches, with the named groups of its pattern."""
        names = dict.fromkeys((str(table), table.full_name))
        for rule, patterns in zip(self.rules, self._patterns, strict=True):
            for pattern in patterns:
                for name in names:
                    if found := pattern.fullmatch(name):
                        return Matched(rule, {k: v or "" for k, v in found.groupdict().items()})
        return Matched(PLAIN, {})

    def unused(self, tables: Iterable[TableId]) -> list[str]:
        """Patterns that match none of some tables, or are never reached for them."""
        used = {id(self.of(table)) for table in tables}
        return [", ".join(rule.tables) for rule in self.rules if id(rule) not in used]

    def text(self) -> str:
        """The rules as JSON; ``TableRules.parse(text)`` gives the same ones."""
        rules = [rule.model_dump(exclude_defaults=True, mode="json") for rule in self.rules]
        return json.dumps(rules, ensure_ascii=False)

    def digest(self) -> str:
        """Tells different rules apart; empty if there are none."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16] if self.rules else ""

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableRules) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.text())


NO_RULES = TableRules()


def nearest(name: str, valid: Iterable[str]) -> str:
    """What a person may have meant, and what there is.

    >>> nearest("custmer", ["id", "customer"])
    "did you mean 'customer'? There are: id, customer"
    """
    names = list(valid)
    lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    hint = f"did you mean {lower[found[0]]!r}? " if found else ""
    return f"{hint}There are: {', '.join(names)}"


def _read(given: str | Path) -> Any:
    """Rules of a file, or of a text."""
    text, where = str(given), "the text"
    if isinstance(given, Path) or not (text.lstrip().startswith(("[", "-", "{", "tables:")) or "\n" in text):
        try:
            text, where = Path(given).read_text(encoding="utf-8"), f"the file {given}"
        except OSError as e:
            raise _refused([f"the file {given} cannot be read: {e.strerror}"]) from e
    try:
        return json.loads(text)
    except ValueError as e:
        wrong = str(e)
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise _refused([f"{where} is not JSON ({wrong}); YAML needs the package PyYAML"]) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise _refused([f"{where} is neither JSON nor YAML: {e}"]) from None


def _contradictions(rule: TableRule) -> list[str]:
    """What a rule says that cannot be true together, or of names that are not known."""
    wrong, columns = [], rule.columns
    # a text is filled in for each table, whichever pattern matches it
    groups = set.intersection(*(set(re.compile(pattern).groupindex) for pattern in rule.tables))
    if taken := sorted(groups & set(_PLACES)):
        wrong.append(f"tables: a group cannot be called {taken[0]}, which has a meaning already")
    texts = {"location": rule.location or "", **{f"shard.{k}": v for k, v in rule.shard.items()}}
    for name, text in {**texts, **{f"columns.constant.{k}": v for k, v in columns.constant.items()}}.items():
        wrong += [f"{name}: {found}" for found in _wrong_places(text, (*_PLACES, *sorted(groups)))]
    if columns.keep and columns.drop:
        wrong.append("columns: keep and drop cannot be set both")
    gone = {name.lower() for name in columns.drop}
    for what in ("rename", "cast"):
        wrong += [f"columns.{what}: {name} is dropped" for name in getattr(columns, what) if name.lower() in gone]
    made = [*rule.constants, *columns.computed, *rule.metadata, *FLAGS[rule.mode], *columns.rename.values()]
    twice = sorted({name for name in made if [n.lower() for n in made].count(name.lower()) > 1})
    wrong += [f"columns: {name} is made twice" for name in twice]
    wrong += [
        f"columns: {name!r} begins with __cdc_, as columns of the job do"
        for name in made
        if name.lower().startswith("__cdc_")
    ]
    if rule.mode != "log" and "unavailable" in columns.metadata.values():
        wrong.append(
            "columns.metadata: unavailable is only in tables of mode log; others keep the values that events leave out"
        )
    if rule.partition_by and rule.cluster_by:
        wrong.append("partition_by and cluster_by cannot be set both")
    if rule.filter is not None and not rule.filter.strip():
        wrong.append("filter: it is empty")
    return wrong


def _wrong_places(text: str, valid: Sequence[str]) -> list[str]:
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as e:
        return [f"{text!r} cannot be filled in: {e}"]
    return [_unknown(name, valid) for name in names if name not in valid]


def _unknown(name: str, valid: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{name!r} is not known{hint} Valid names are: {', '.join(valid)}"


def _explained(error: Any) -> str:
    """One mistake in words."""
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        model: type[BaseModel] = ColumnRules if len(error["loc"]) > 1 else TableRule
        return f"{'.'.join(map(str, error['loc'][:-1])) + ': ' if len(error['loc']) > 1 else ''}{_unknown(str(error['loc'][-1]), list(model.model_fields))}"
    if error["type"] == "missing":
        return f"{path} is missing"
    if error["type"] == "literal_error":
        return f"{path}: {_unknown(str(error['input']), _VALUES.get(path, ()))}"
    if path == "tables" and error["type"] == "too_short":
        return "tables names no table"
    if path == "shard" and error["type"] == "too_long":
        return "shard: it is one column"
    return f"{path}: {error.get('ctx', {}).get('error') or error['msg']}"


_VALUES = {"mode": get_args(Mode), "type_changes": get_args(TypeChanges)}
"""Option → the values that it may have."""


def _refused(wrong: Sequence[str]) -> ConfigError:
    return ConfigError(
        "The rules of target tables cannot be used:\n" + "\n".join(f"  {text}" for text in wrong),
        safe="No table was changed.",
        remedy='for example [{"tables": "shop\\\\.(orders|lines)", "mode": "history", "columns": {"drop": ["note"]}}]; see docs/targets.md',
    )
