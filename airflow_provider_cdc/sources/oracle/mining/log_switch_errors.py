"""Log switches while a window is mined: the errors that mean it, and how far the window had been read by then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import oracledb
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import code_of, translate_driver_errors
from airflow_provider_cdc.sources.oracle.error_translation import LOG_NOT_READY

LOGS_MOVED: Final = LOG_NOT_READY | {
    305, 312, 332, 333, 334, 342, 346, 353, 354, 355, 367, 368, 1285, 1286, 1290, 1292, 1306, 1307, 1327, 1346, 1368, 1371,
    15173, 17503, 19505, 19870, 27037, 27041, 27048,
}  # fmt: skip
"""Error codes: a log was switched, copied or removed while it was opened or read. The next attempt shows whether it is lost or damaged."""


class LogsMoved(Exception):
    """The logs of the session were switched, archived or removed: they have to be collected again."""


@dataclass(slots=True)
class WindowProgress:
    """The part of a window that was read: its first ``rows`` rows. Rows of a log always come in the same order.

    :param low: first SCN of the window
    :param last: identity of the last of these rows
    """

    low: int
    rows: int = 0
    last: tuple[Any, ...] = ()

    def record_read_batch(self, batch: pa.RecordBatch) -> None:
        """Record that a whole batch was read."""
        self.rows += batch.num_rows
        self.last = identify_row(batch, batch.num_rows - 1)


def identify_row(batch: pa.RecordBatch, at: int) -> tuple[Any, ...]:
    """Return the columns that distinguish a row from others of its SCN."""
    return tuple(batch.column(name)[at].as_py() for name in ("scn", "code", "thread", "rs_id", "ssn", "xid"))


@dataclass(slots=True)
class LogSwitchGuard:
    """A context manager that translates the driver's errors; those in :data:`LOGS_MOVED` become :class:`LogsMoved`."""

    config: OracleConfig
    where: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, e: BaseException | None, trace: object) -> None:
        if isinstance(e, oracledb.Error) and code_of(e) in LOGS_MOVED:
            raise LogsMoved(str(e).split("\n")[0]) from e
        if isinstance(e, oracledb.Error | OSError | EOFError):
            with translate_driver_errors(self.config, self.where):
                raise e
