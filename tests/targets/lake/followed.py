"""Tables of a database that are followed, compared with it and repaired: what comparisons with Oracle and with Db2 have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, rules_of
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.verify.reference_capture import open_verification
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.connectors import Connector
from tests.support.signals import signal_state

ODD = "it's #1"
RULES = [
    {"tables": r".*\.DAYS", "mode": "history", "columns": {"rename": {"N": "number"}}},
    {"tables": r".*\.BIG", "filter": "n > 5", "mode": "soft_delete"},
]


class FollowedConnector:
    """A connector and its Delta tables, by :data:`RULES`.

    The database has the tables :data:`ODD` (ID, DOC …), CODES (CODE …), DAYS (a moment, N), BIG (ID, N) and BAG, which has no key.
    """

    def __init__(self, spark: SparkSession, connector: Connector, folder: Path) -> None:
        self.spark, self.connector, self._folder = spark, connector, folder
        self._rules, self._location = TableRules.parse(RULES), f"{folder}/lake/{{table}}"

    def follow(self) -> None:
        self.connector.capture()
        ApplyChanges(
            self.spark, self.connector.changelog, self.connector.name, location=self._location, threads=2, tables=self._rules
        ).run()  # fmt: skip

    def verify(
        self, meanwhile: Callable[[], object] | None = None, *, repair: bool = False
    ) -> tuple[VerificationReport, list[int]]:
        """:return: what was found, and the signals that were sent"""
        with open_verification(
            self.connector.definition(), self.connector.state_url, secrets=self.connector.secrets
        ) as verification:
            wait, done = verification._wait, list[bool]()

            def wait_and_change(position: Any, wait_s: float) -> None:
                # the SCN continues by itself: rows without a key, which may be read again, have another one
                (meanwhile if meanwhile and not done else self.connector.capture)()
                done.append(True)
                wait(position, wait_s)

            verification._wait = wait_and_change  # type: ignore[method-assign]
            report = ApplyReports(self.connector.changelog.storage, self.connector.name).read("delta", self._location)
            plan = verification.prepare_plan(wait_s=60, rules=rules_of(report or {}))
            verified = VerifyTables(
                self.spark, verification.scratch, self.connector.name, location=self._location, threads=2, plan=plan,
                source=self.connector.changelog, keys=verification.scratch.storage.build_uri("keys") if repair else "", values=True,
            ).run()  # fmt: skip
            repairs = verification.build_repairs(verified.to_document()) if repair else []
            sent = verification.send(repairs, "me")
            assert not repair or set(sent) == {t.topic for t in verified.tables if t.rows_differ}, repairs
            return verified, list(sent.values())

    def table(self, name: str) -> str:
        """Its name in SQL."""
        return f"delta.`{self._folder}/lake/{name}`"

    def damaged_and_repaired(self) -> None:
        """Rows of the tables are lost and changed; a comparison finds just these, and what it sends repairs them."""
        sql = self.spark.sql
        sql(f"DELETE FROM {self.table(ODD)} WHERE ID IN (7, 8)")
        sql(f"UPDATE {self.table(ODD)} SET DOC = 'other' WHERE ID = 9")
        sql(f"UPDATE {self.table(ODD)} SET ID = 1000 WHERE ID = 10")
        sql(f"DELETE FROM {self.table('CODES')} WHERE CODE = 'c7'")
        sql(f"UPDATE {self.table('CODES')} SET CODE = 'zz' WHERE CODE = 'c8'")
        sql(f"DELETE FROM {self.table('DAYS')} WHERE number = 11")
        sql(f"UPDATE {self.table('BIG')} SET N = 99 WHERE N = 12")
        sql(f"UPDATE {self.table('BIG')} SET _is_deleted = true WHERE N = 13")
        verified, sent = self.verify(repair=True)
        counts = {
            t.location.rpartition("/")[2]: (t.missing, t.surplus, t.different) for t in verified.tables if t.rows_differ
        }
        assert counts == {ODD: (3, 1, 1), "CODES": (2, 1, 0), "DAYS": (1, 0, 0), "BIG": (1, 0, 1)}, (
            verified.format_text()
        )
        self.follow()
        assert [signal_state(self.connector, number) for number in sent] == [("done", "")] * 4
        verified, _ = self.verify()
        assert verified.is_equal, verified.format_text()


def of_table(verified: VerificationReport, name: str) -> TableVerification:
    """Return the verification of a table."""
    return next(t for t in verified.tables if t.location.endswith(f"/{name}"))
