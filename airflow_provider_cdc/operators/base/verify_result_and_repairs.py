"""The result that a task makes of a comparison of tables with the source, and the signals that repair them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.remedy_commands import format_cdc_command

if TYPE_CHECKING:
    from airflow_provider_cdc.verify.reference_capture import Verification
    from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport


def result_of(verified: VerificationReport, target: str, repaired: Sequence[str]) -> dict[str, Any]:
    """Build the result of the task: ``{"connector", "target", "position", "tables", "not_compared", "seconds"}``.

    :param repaired: result of :func:`send_repairs`
    :raises AirflowFailException: tables differ, or can never be compared and were meant
    :raises AirflowException: tables could not be compared now
    """
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException

    if verified.exit_status == 1:  # it would differ again
        raise AirflowFailException(_differ(verified, repaired))
    if verified.exit_status:
        again = any(table.not_compared and not table.never for table in verified.counted_tables)
        raise (AirflowException if again else AirflowFailException)(_unsure(verified))
    return {
        "connector": verified.connector,
        "target": target,
        "position": verified.position,
        "tables": {table.display_name: table.source for table in verified.tables if not table.not_compared},
        "not_compared": {table.display_name: table.not_compared for table in verified.tables if table.not_compared},
        "seconds": verified.seconds,
    }


def send_repairs(verification: Verification, report: Mapping[str, Any], by: str) -> list[str]:
    """Send the signals that repair the tables that differ.

    :param report: the result of the comparison, as a document
    :param by: who sends signals
    :return: the repair of each of them, sent or advised
    """
    repairs = verification.build_repairs(report)
    numbers = verification.send(repairs, by)
    signal = {topic: f"signal {number} was sent: " for topic, number in numbers.items()}
    return [f"{repair.topic}: {signal.get(repair.topic, '')}{repair.advice}" for repair in repairs]


def _differ(verified: VerificationReport, repaired: Sequence[str]) -> str:
    wrong = [table for table in verified.tables if not (table.is_equal or table.not_compared)]
    lines, name = [f"  {table.display_name}: {_table_text(table)}" for table in wrong], verified.connector
    if repaired:
        return "\n".join(
            [f"{len(wrong)} tables of {name} were not equal to the source:", *lines, "  Repair:"]
            + [f"  {line}" for line in repaired]
        )
    repairs = [
        "  Safe:   the tables are unchanged; capture and apply continue.",
        f"  Repair: `{format_cdc_command('rebuild', name, *_named(wrong))}` rebuilds them from the change log; if the change log itself lacks",
        f"          changes, `{format_cdc_command('verify', name, repair=True)}` snapshots the rows that differ again.",
    ]
    return "\n".join([f"{len(wrong)} tables of {name} are not equal to the source:", *lines, *repairs])


def _named(tables: Sequence[TableVerification]) -> list[str]:
    """Return the tables by the names that a rebuild takes: of a topic with a route, the locations."""
    return list(dict.fromkeys(table.location if table.name else table.topic for table in tables))


def _table_text(table: TableVerification) -> str:
    counts = f"{table.missing:,} rows missing, {table.surplus:,} surplus, {table.different:,} different"
    return f"{table.problem or counts} ({table.location})"


def _unsure(verified: VerificationReport) -> str:
    unsure = [table for table in verified.counted_tables or verified.tables if table.not_compared]
    lines = [f"  {table.display_name}: {table.not_compared}" for table in unsure]
    return "\n".join(
        [f"{len(unsure)} tables of {verified.connector} could not be verified; the others are equal:", *lines]
    )
