"""From the rows of committed transactions to row blocks: the redo statements of one table are read at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import CdcError, SchemaConflict, values_of
from airflow_provider_cdc.core.model.log_items import BlockTransactions, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.flat_columns import flatten_column
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import LAST_CHANGE, NO_ROW_ID
from airflow_provider_cdc.sources.oracle.redo.lob_assembler import read_with_lobs
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader, RedoRows
from airflow_provider_cdc.sources.oracle.schema.schema_versions import SchemaVersions
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups
from airflow_provider_cdc.sources.oracle.transactions.buffer.commit_positions import TransactionCommit
from airflow_provider_cdc.sources.oracle.transactions.buffer.rolled_back_rows import (
    COLUMNS,
    not_rolled_back,
    warn_inferred,
)
from airflow_provider_cdc.sources.oracle.transactions.lob_reselect import reselect_values
from airflow_provider_cdc.sources.oracle.transactions.net_changes import net_changes
from airflow_provider_cdc.sources.oracle.transactions.unreadable_row_check import find_readable_rows

Int64s = npt.NDArray[np.int64]

TEXT_BYTES = 64 << 20
"""Greatest size of the redo statements that are read at a time, bytes."""


class RowDecoder:
    """Decodes redo rows to row blocks. It keeps a reader for each table schema.

    :param versions: the tables' schemas by SCN
    :param lookups: reads a row as of an SCN
    """

    def __init__(self, config: OracleConfig, versions: SchemaVersions, lookups: StreamLookups) -> None:
        self._config, self._versions, self._lookups = config, versions, lookups
        self._readers: dict[int, tuple[TableSchema, RedoReader]] = {}
        self._scns: list[int] = []

    def decode(
        self, rows: pa.Table, commits: list[TransactionCommit], *, undecided: bool = False
    ) -> tuple[list[RowBlock], BlockTransactions]:
        """Return the row blocks of some transactions.

        :param rows: columns of :data:`airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments.ROWS`, by transaction in the order of ``commits``
        :param undecided: undo rows were not matched with the changes that they undo
        :raises SchemaConflict: a row does not match the schema at its SCN
        :raises UnreadableValue: a value cannot be read
        """
        ids = pa.array([c.id for c in commits], pa.string())
        transactions = BlockTransactions(ids, np.array([c.ts_us for c in commits], np.int64))
        serials = np.array([c.serial for c in commits], np.int64)
        order = np.argsort(serials)
        owner = order[np.searchsorted(serials[order], rows.column("tx").to_numpy())].astype(np.int32)
        commit_scns = pa.array([str(c.scn) for c in commits], pa.string())
        self._scns = [c.scn for c in commits]
        tables = rows.column("table").to_numpy()
        parts: list[tuple[RowBlock, Int64s]] = []
        for number in np.unique(tables):
            index = np.flatnonzero(tables == number)
            for part, schema in self._by_schema(rows, index, int(number)):
                if undecided:
                    part, net = self._match_undo_rows(rows, part, schema, owner, ids)
                    parts += [
                        self._block(rows.take(pa.array(at)), at, read, schema, owner, ids, commit_scns)
                        for read, at in net
                    ]
                parts += self._read(rows, part, schema, owner, ids, commit_scns)
        self._number(parts, len(owner))
        return [block for block, _ in parts], transactions

    def _by_schema(self, rows: pa.Table, index: Int64s, number: int) -> Iterator[tuple[Int64s, TableSchema]]:
        """Split rows of a table by the schema at their SCN: rows may be written before a DDL statement and committed after it."""
        scns = rows.column("scn").to_numpy()[index]
        lowest, highest = int(scns.min()), int(scns.max())
        schema, until = self._versions.find_schema(number, lowest)
        while until <= highest:
            early = scns < until
            yield index[early], schema
            index, scns = index[~early], scns[~early]
            schema, until = self._versions.find_schema(number, int(scns.min()))
        yield index, schema

    def _read(
        self,
        rows: pa.Table,
        index: Int64s,
        schema: TableSchema,
        owner: npt.NDArray[np.int32],
        ids: pa.StringArray,
        commit_scns: pa.StringArray,
    ) -> list[tuple[RowBlock, Int64s]]:
        blocks = []
        codes = rows.column("code").to_numpy()
        starts = (codes <= LAST_CHANGE) & ~rows.column("rollback").to_numpy(zero_copy_only=False)
        for part in _by_size(rows, index, starts, owner):
            picked = _taken(rows, part)
            good = find_readable_rows(picked, schema, owner[part], ids)
            if not good.all():
                part, picked = part[good], picked.filter(pa.array(good)).combine_chunks()
            with values_of(schema.id):
                try:
                    read, origin, named = self._texts(picked, schema, owner[part])
                except SchemaConflict:
                    if not self._ignore_hidden(schema):
                        raise
                    read, origin, named = self._texts(picked, schema, owner[part])
            if not len(origin):
                continue
            if len(origin) != len(part):
                row_ids = picked.column("row_id").take(pa.array(named))
                picked = picked.take(pa.array(origin))
                picked = picked.set_column(picked.schema.get_field_index("row_id"), "row_id", row_ids)
            blocks.append(self._block(picked, part[origin], read, schema, owner, ids, commit_scns))
        return blocks

    def _block(
        self,
        picked: pa.Table,
        at: Int64s,
        read: RedoRows,
        schema: TableSchema,
        owner: npt.NDArray[np.int32],
        ids: pa.StringArray,
        commit_scns: pa.StringArray,
    ) -> tuple[RowBlock, Int64s]:
        """Return the block of some output rows.

        :param picked: a log row for each of them
        :param at: indices of these
        """
        block = RowBlock(
            table=schema,
            op=read.op,
            before=read.before,
            after=read.after,
            order=at,
            transaction=owner[at],
            ts_us=picked.column("ts_us").to_numpy(),
            source=self._source(picked, owner[at], ids, commit_scns),
            unavailable_before=read.unavailable_before,
            unavailable_after=read.unavailable_after,
            address=_addresses(flatten_column(picked.column("row_id"))),
        )
        return block, at

    def _match_undo_rows(
        self, rows: pa.Table, index: Int64s, schema: TableSchema, owner: npt.NDArray[np.int32], ids: pa.StringArray
    ) -> tuple[Int64s, list[tuple[RedoRows, Int64s]]]:
        """Match undo rows with the changes that they undo.

        :return: the rows that are to be read, without those that were undone; and the net changes of transactions, with their log rows
        """
        undo = rows.column("rollback").take(pa.array(index)).to_numpy(zero_copy_only=False)
        if not undo.any():
            return index, []
        of, rest, net = owner[index], [], []
        undone = np.unique(of[undo])
        rest.append(index[~np.isin(of, undone)])
        for transaction in undone.tolist():
            part = index[of == transaction]
            picked = rows.take(pa.array(part)).combine_chunks()
            good = find_readable_rows(picked, schema, owner[part], ids)
            part, picked = part[good], picked.filter(pa.array(good)).combine_chunks()
            with values_of(schema.id):
                net_change = self._net_changes(picked, schema, self._scns[transaction])
            if net_change is not None:
                if len(net_change[1]):
                    net.append((net_change[0], part[net_change[1]]))
                continue
            warn_inferred(str(ids[transaction]), schema.id)
            rest.append(part[not_rolled_back(picked.select(COLUMNS), lambda _: [schema]).keep])
        return np.sort(np.concatenate(rest)), net

    def _net_changes(self, rows: pa.Table, schema: TableSchema, scn: int) -> tuple[RedoRows, Int64s] | None:
        try:
            return net_changes(self._reader(schema), rows, scn, self._lookups)
        except SchemaConflict:
            if not self._ignore_hidden(schema):
                raise
            return net_changes(self._reader(schema), rows, scn, self._lookups)

    def _texts(
        self, rows: pa.Table, schema: TableSchema, owner: npt.NDArray[np.int32]
    ) -> tuple[RedoRows, Int64s, Int64s]:
        """Return the output rows of log rows, the index of the first log row of each, and of the one that has its ROWID."""
        reader = self._reader(schema)
        codes, texts = rows.column("code").to_numpy(), flatten_column(rows.column("sql"))
        undo = rows.column("rollback").to_numpy(zero_copy_only=False)
        try:
            row_ids = flatten_column(rows.column("row_id"))
            plain = (codes <= LAST_CHANGE).all() and not undo.any() and not texts.null_count
            if plain and not (reader.long and pc.any(pc.equal(row_ids, NO_ROW_ID)).as_py()):
                origin = np.arange(len(codes))
                return reader.read(texts, codes), origin, origin
            assembled = read_with_lobs(reader, texts, codes, owner.astype(np.int64), row_ids, undo)
            redo_rows, origin = assembled.rows, assembled.origin
            if assembled.unknown is not None:
                ids = row_ids.take(pa.array(assembled.named)).to_pylist()
                scns = [self._scns[i] for i in owner[origin].tolist()]
                redo_rows = reselect_values(redo_rows, assembled.unknown, schema, ids, scns, self._lookups)
            return redo_rows, origin, assembled.named
        except CdcError as e:
            scns = rows.column("scn").to_numpy()
            e.where = f"{e.where or schema.id}, redo of SCN {scns.min()} to {scns.max()}"
            raise

    def _reader(self, schema: TableSchema) -> RedoReader:
        cached = self._readers.get(id(schema))
        if cached is None or cached[0] is not schema:
            cached = self._readers[id(schema)] = schema, RedoReader(schema, self._config)
        return cached[1]

    def _ignore_hidden(self, schema: TableSchema) -> bool:
        """Read a table's statements without the columns that Oracle keeps for itself, which the log may name. Returns whether it has some."""
        hidden = self._lookups.read_hidden_columns(schema.id)
        if not hidden or self._reader(schema).ignored == hidden:
            return False
        self._readers[id(schema)] = schema, RedoReader(schema, self._config, hidden)
        return True

    def _source(
        self, rows: pa.Table, owner: npt.NDArray[np.int32], ids: pa.StringArray, commit_scns: pa.StringArray
    ) -> dict[str, pa.Array]:
        names = ["scn", "rs_id", "ssn", "thread", "user", "row_id"]
        if self._config.log_mining_include_redo_sql:
            names.append("sql")
        columns = {name: flatten_column(rows.column(name)) for name in names}
        of = pa.array(owner)
        return {
            "txId": pa.DictionaryArray.from_arrays(of, ids),
            "scn": columns["scn"].cast(pa.string()),
            "commit_scn": pa.DictionaryArray.from_arrays(of, commit_scns),
            "rs_id": pc.utf8_trim_whitespace(columns["rs_id"]).cast(pa.string()),
            "ssn": columns["ssn"],
            "redo_thread": columns["thread"],
            "user_name": columns["user"].cast(pa.string()),
            "row_id": columns["row_id"].cast(pa.string()),
            **({"redo_sql": columns["sql"].cast(pa.string())} if "sql" in columns else {}),
        }

    def _number(self, parts: list[tuple[RowBlock, Int64s]], n: int) -> None:
        """Set the numbers of the rows: 0, 1, 2 … in commit order.

        Log rows that were merged into others (pieces of LOBs) have no number.
        """
        present = np.zeros(n, np.int64)
        for _, at in parts:
            present[at] = 1
        order = np.cumsum(present) - 1
        for block, at in parts:
            block.order = order[at]


def _by_size(
    rows: pa.Table, index: Int64s, starts: npt.NDArray[np.bool_], owner: npt.NDArray[np.int32]
) -> Iterator[Int64s]:
    """Split the rows where their statements are too long for one call.

    The pieces of a long value stay with their change: if there are any, rows are split between transactions only, or, in a transaction
    that is too large, before a change.

    :param starts: mask of the rows that begin a change
    """
    lengths = pc.binary_length(rows.column("sql")).fill_null(0).to_numpy()[index]
    ends = np.cumsum(lengths)
    if not len(ends) or ends[-1] <= TEXT_BYTES:
        yield index
        return
    cuts = np.arange(1, len(index))
    if not starts[index].all():
        cuts = cuts[starts[index[1:]]]
        border = cuts[owner[index[cuts]] != owner[index[cuts - 1]]]
        large = np.diff(ends[np.concatenate([[0], border - 1, [len(index) - 1]])]).max(initial=0) > TEXT_BYTES
        cuts = cuts if large else border
    lo, done = 0, 0
    while lo < len(index):
        fits = cuts[(cuts > lo) & (ends[cuts - 1] <= done + TEXT_BYTES)]
        beyond = cuts[cuts > lo]
        hi = int(fits[-1]) if len(fits) else int(beyond[0]) if len(beyond) else len(index)
        if ends[-1] <= done + TEXT_BYTES:
            hi = len(index)
        yield index[lo:hi]
        lo, done = hi, int(ends[hi - 1])


def _taken(rows: pa.Table, index: Int64s) -> pa.Table:
    """Return the rows of an ascending index; without a copy, where they follow each other."""
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return rows.slice(int(index[0]), len(index)).combine_chunks()
    return rows.take(pa.array(index)).combine_chunks()


def _addresses(row_ids: pa.Array) -> pa.Array | None:
    """Return the addresses of the rows, if the log has that of all."""
    return None if row_ids.null_count or pc.any(pc.equal(row_ids, NO_ROW_ID)).as_py() else row_ids
