"""Forms of change events beside the usual one, for consumers that were written for another connector to the same database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

USUAL: Final = "debezium"
"""Name of the form that every source has."""


@dataclass(frozen=True, slots=True)
class EventForm:
    """The form of the ``source`` block in the events of another connector. Keys, rows and operations are those of the usual form.

    :param name: as ``airflow cdc events --form`` takes it
    :param source_schema: name of the schema of the ``source`` block
    :param fields: that block's fields, in their order
    :param source: makes the block of the usual one; also gets the ``seq`` of the event
    :param transactions: whether events name their transaction, and records mark its begin and end
    """

    name: str
    source_schema: str
    fields: pa.StructType
    source: Callable[[Mapping[str, Any], int], dict[str, Any]]
    transactions: bool = True


def select_event_form(forms: Mapping[str, EventForm], name: str, source: str) -> EventForm | None:
    """Choose the form of that name; ``None`` stands for the usual one.

    :param forms: forms that the source offers
    :param source: kind of source, for the error
    :raises ConfigError: there is no such form

    >>> select_event_form({}, "debezium", "mariadb")
    """
    if name == USUAL:
        return None
    if name not in forms:
        raise ConfigError(
            f"Events of {source} do not have the form {name!r}. Valid values are: {', '.join([USUAL, *sorted(forms)])}."
        )
    return forms[name]
