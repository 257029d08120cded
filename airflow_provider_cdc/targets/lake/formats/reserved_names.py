"""Names that columns of a kind of table cannot have, as its readers or writers use them for columns of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from airflow_provider_cdc.core.errors import TargetError


def refuse_reserved(kind: str, reserved: Collection[str], names: Iterable[str], where: str) -> None:
    """Reject columns with reserved names.

    :param kind: of the table, in words for people
    :param reserved: in lower case
    :raises TargetError: a column has one of the reserved names
    """
    if matches := [name for name in names if name.lower() in reserved]:
        another = matches[0].strip("_") if matches[0].startswith("_") else f"{matches[0]}_"
        raise TargetError(
            f"{kind} tables cannot have a column called {matches[0]!r}: their readers or writers use this name for another purpose.",
            where=where,
            safe="The table was not changed; the change log keeps the batches.",
            remedy=f"give it another name, or leave it out, with a rule for the table: columns.rename {{{matches[0]!r}: {another!r}}} or "
            "columns.drop; a column that a rule adds gets its name in the rule",
        )
