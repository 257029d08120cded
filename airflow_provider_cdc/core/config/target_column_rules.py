"""Rules for the columns of a table: which ones it has, their names, and their content.

This module is imported at DAG parse: it must stay light. Names of columns are checked when a job knows the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from airflow_provider_cdc.core.config.name_suggestions import describe_unknown_name, suggest_names

METADATA = (
    "op", "seq", "commit_ts", "captured_ts", "transaction_id", "source", "snapshot", "unavailable", "connector", "topic", "database", "table",
)  # fmt: skip
"""Facts about the last event of its row that a column may hold."""


def _names(value: Any) -> Any:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(part, str) and part for part in names):
        raise ValueError(f"{value!r} is not a list of names")
    if twice := sorted({name for name in names if [n.lower() for n in names].count(name.lower()) > 1}):
        raise ValueError(f"{twice[0]!r} is named twice")
    return tuple(names)


def _metadata(value: Any) -> Any:
    """``["seq"]`` means ``{"_seq": "seq"}``."""
    columns = value if isinstance(value, Mapping) else {f"_{name}": name for name in _names(value)}
    for name, field in columns.items():
        if field not in METADATA:
            raise ValueError(f"{name}: {describe_unknown_name(str(field), METADATA)}")
    return dict(columns)


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class ColumnRules(BaseModel):
    """The rules for a table's columns.

    :param keep: only these columns of the source; all, if it is empty
    :param drop: not these
    :param rename: column of the source → its name in the table
    :param cast: column of the source → its Spark type in the table
    :param constant: column of the table → a text, in which ``{database}``, ``{table}``, ``{topic}``, ``{connector}`` and named groups of the
        rule's pattern are filled in
    :param computed: column of the table → a SQL expression over the source's columns
    :param metadata: column of the table → one of :data:`METADATA`; or a list of these, for columns called ``_op`` and so on
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep: Names = ()
    drop: Names = ()
    rename: dict[str, str] = Field(default_factory=dict)
    cast: dict[str, str] = Field(default_factory=dict)
    constant: dict[str, str] = Field(default_factory=dict)
    computed: dict[str, str] = Field(default_factory=dict)
    metadata: Annotated[dict[str, str], BeforeValidator(_metadata)] = Field(default_factory=dict)


def find_column_contradictions(columns: ColumnRules, shard: Mapping[str, str]) -> list[str]:
    """List the contradictions in a rule about columns, and settings that would have no effect.

    :param shard: the column by which source tables differ, and its text
    """
    wrong = []
    if columns.keep and columns.drop:
        wrong.append("columns: keep and drop cannot be set both")
    gone, keep = ({name.lower() for name in names} for names in (columns.drop, columns.keep))
    for part in ("rename", "cast"):
        names = list(getattr(columns, part))
        lower = [name.lower() for name in names]
        wrong += [f"columns.{part}: {name} is in columns.drop" for name in names if name.lower() in gone]
        if keep:
            wrong += [
                f"columns.{part}: {name} is not in columns.keep; {suggest_names(name, columns.keep)}"
                for name in names
                if name.lower() not in keep
            ]
        wrong += [
            f"columns.{part}: {name} is named twice, in different case"
            for at, name in enumerate(names)
            if name.lower() in lower[:at]
        ]
    named = {
        "columns.rename": columns.rename.values(), "columns.constant": columns.constant, "columns.computed": columns.computed,
        "columns.metadata": columns.metadata, "shard": shard,
    }  # fmt: skip
    return wrong + [
        f"{part}: a column name is empty" for part, names in named.items() if not all(n.strip() for n in names)
    ]
