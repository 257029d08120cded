"""Logs that move away while they are mined: which errors mean that, and how much of a window had been handed over by then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import oracledb
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import code_of, translated
from airflow_provider_cdc.sources.oracle.errors import LOG_NOT_READY

LOGS_MOVED: Final = LOG_NOT_READY | {
    305, 312, 332, 333, 334, 342, 346, 353, 354, 355, 367, 368, 1285, 1286, 1290, 1292, 1306, 1307, 1327, 1346, 1368, 1371,
    15173, 17503, 19505, 19870, 27037, 27041, 27048,
}  # fmt: skip
"""A log was switched, copied or removed while it was opened or read. Whether it is really gone or damaged is seen at the next look."""


class LogsMoved(Exception):
    """What was collected does not hold any more: look again."""


@dataclass(slots=True)
class Progress:
    """How much of a window was handed over: everything before SCN ``low``, and the first ``rows`` rows of it.

    :param last: which row the last one of these was
    :param ordered: rows came by ascending SCN, so that there is such a place at all
    """

    low: int
    rows: int = 0
    last: tuple[Any, ...] = ()
    ordered: bool = True

    def advance(self, batch: pa.RecordBatch) -> None:
        """A batch was handed over, whole."""
        scns = batch.column("scn")
        values = scns.to_numpy()
        self.ordered &= bool(values[0] >= self.low and (values[1:] >= values[:-1]).all())
        last = int(values[-1])
        here = int((values == last).sum())
        self.rows = here + (self.rows if last == self.low else 0)
        self.low, self.last = last, identity(batch, batch.num_rows - 1)


def identity(batch: pa.RecordBatch, at: int) -> tuple[Any, ...]:
    """What tells a row from others of its SCN."""
    return tuple(batch.column(name)[at].as_py() for name in ("scn", "code", "thread", "rs_id", "ssn", "xid"))


@dataclass(slots=True)
class WatchedLogs:
    """Errors of the driver as ours, those of logs that moved away as a reason to look again."""

    config: OracleConfig
    where: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, e: BaseException | None, trace: object) -> None:
        if isinstance(e, oracledb.Error) and code_of(e) in LOGS_MOVED:
            raise LogsMoved(str(e).split("\n")[0]) from e
        if isinstance(e, oracledb.Error | OSError | EOFError):
            with translated(self.config, self.where):
                raise e
