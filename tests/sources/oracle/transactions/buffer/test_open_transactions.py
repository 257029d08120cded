"""Open transactions by their rows alone. On a server: ``test_private_strands.py``."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import INSERT, START
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import UNKNOWN, OpenTransactions
from airflow_provider_cdc.sources.oracle.transactions.user_filter import UserFilter
from tests.sources.oracle.redo.redo_tables import config

NIGHT, WEB = bytes.fromhex("0100020003000000"), bytes.fromhex("0100030003000000")


def _rows(code: int, *users: tuple[bytes, str, str | None]) -> pa.Table:
    xids, names, clients = zip(*users, strict=True)
    n = len(users)
    return pa.table(
        {
            "code": pa.array([code] * n, pa.int16()),
            "xid": pa.array(xids, pa.binary()),
            "scn": pa.array([100] * n, pa.int64()),
            "ts_us": pa.array([0] * n, pa.int64()),
            "user": pa.array(names, pa.large_string()),
            "client_id": pa.array(clients, pa.large_string()),
        }
    )


@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize(
    "lists",
    [
        {"username.exclude.list": "BATCH"},
        {"username.include.list": "APP"},
        {"clientid.exclude.list": "night"},
        {"clientid.include.list": "web"},
    ],
)
def test_a_transaction_that_spans_runs_is_left_out_or_captured_whole(lists: dict[str, str], carried: bool) -> None:
    """O2: only with the START does LogMiner name user and client id; later rows have neither."""
    users = UserFilter(config(**{f"log.mining.{name}": value for name, value in lists.items()}))
    first = OpenTransactions(OraclePosition(90, 90), users)
    first.assign_serials(_rows(START, (NIGHT, "BATCH", "night"), (WEB, "APP", "web")))
    if carried:  # with the changes that wait for their commit
        later = OpenTransactions(OraclePosition(110, 110), users)
        later.restore_state(json.loads(json.dumps(first.export_state())))
    else:  # none waits, and the position has the names
        later = OpenTransactions(OraclePosition(110, 110, names=first.list_transaction_users(())), users)
    _, met = later.assign_serials(_rows(INSERT, (NIGHT, UNKNOWN, None), (WEB, UNKNOWN, None)))
    assert {transaction.xid: transaction.left_out for transaction in met.values()} == {NIGHT: True, WEB: False}
    assert [later.leaves_out(xid) for xid in (NIGHT, WEB)] == [True, False]
