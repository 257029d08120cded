"""Table schemas from the catalog (Oracle's data dictionary views): for discovery, snapshots, and questions that DDL leaves open.

A handful of queries reads any number of tables. Left out, because LogMiner has no rows of them or because they are not a
user's data, are: Oracle's own schemas, and tables that are temporary, external, nested, secondary (of domain indexes),
overflow of index-organized ones, dropped (in the recycle bin), logs of materialized views, and this connector's flush table
(Debezium Oracle connector, "How the Oracle connector works"; spec ORA-015 to 018).

Columns that cannot be captured are columns of type ``null`` (:mod:`.column_types`): LONG, BFILE, object types and the like, and
virtual columns, which are computed when they are read and have no redo. Invisible columns are captured like others. Columns
that Oracle keeps for itself are not part of a table; :meth:`OracleCatalog.read_hidden_columns` names them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

import oracledb
from oracledb import Connection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import code_of, fetch_rows, fetch_scalar
from airflow_provider_cdc.sources.oracle.schema.column_defaults import default_of, evaluate_constant
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL, TEXTS, ColumnType, make_column
from airflow_provider_cdc.sources.oracle.schema.create_statement import create_statement
from airflow_provider_cdc.sources.oracle.schema.system_tables import (
    LIKELY_NAMES,
    SYSTEM_SCHEMAS,
    is_system,
    is_system_schema,
)
from airflow_provider_cdc.sources.relational.row_key import row_key
from airflow_provider_cdc.sources.relational.sql_quoting import quote_literal

log = logging.getLogger(__name__)

MOST_NAMED: Final = 400
"""More tables are not named one by one in a query: their schemas are."""

_TABLES = """
SELECT t.OWNER, t.TABLE_NAME, t.NUM_ROWS, t.BLOCKS, t.IOT_TYPE, t.PARTITIONED, t.CLUSTER_NAME
FROM ALL_TABLES{at} t
WHERE t.TEMPORARY = 'N' AND t.NESTED = 'NO' AND t.SECONDARY = 'N' AND t.DROPPED = 'NO' AND t.IOT_NAME IS NULL
  AND {where}
ORDER BY t.OWNER, t.TABLE_NAME"""
_EXTERNAL = "SELECT t.OWNER, t.TABLE_NAME FROM ALL_EXTERNAL_TABLES{at} t WHERE {where}"
_COLUMNS = """
SELECT t.OWNER, t.TABLE_NAME, t.COLUMN_NAME, t.DATA_TYPE, t.DATA_TYPE_OWNER, t.DATA_LENGTH, t.CHAR_LENGTH, t.DATA_PRECISION,
       t.DATA_SCALE, t.NULLABLE, t.IDENTITY_COLUMN, t.VIRTUAL_COLUMN, t.HIDDEN_COLUMN, t.USER_GENERATED, t.DATA_DEFAULT
FROM ALL_TAB_COLS{at} t
WHERE {where}
ORDER BY t.OWNER, t.TABLE_NAME, t.COLUMN_ID NULLS LAST, t.INTERNAL_COLUMN_ID"""
_CONSTRAINTS = """
SELECT t.OWNER, t.TABLE_NAME, t.CONSTRAINT_NAME, t.CONSTRAINT_TYPE, k.COLUMN_NAME
FROM ALL_CONSTRAINTS{at} t
JOIN ALL_CONS_COLUMNS{at} k
  ON k.OWNER = t.OWNER AND k.TABLE_NAME = t.TABLE_NAME AND k.CONSTRAINT_NAME = t.CONSTRAINT_NAME
WHERE t.CONSTRAINT_TYPE IN ('P', 'U') AND t.STATUS = 'ENABLED' AND {where}
ORDER BY t.OWNER, t.TABLE_NAME, t.CONSTRAINT_NAME, k.POSITION"""
_INDEXES = """
SELECT t.TABLE_OWNER, t.TABLE_NAME, t.INDEX_NAME, 'I', k.COLUMN_NAME
FROM ALL_INDEXES{at} t
JOIN ALL_IND_COLUMNS{at} k ON k.INDEX_OWNER = t.OWNER AND k.INDEX_NAME = t.INDEX_NAME
WHERE t.UNIQUENESS = 'UNIQUE' AND t.INDEX_TYPE = 'NORMAL' AND t.STATUS <> 'UNUSABLE' AND {where}
ORDER BY t.TABLE_OWNER, t.TABLE_NAME, t.INDEX_NAME, k.COLUMN_POSITION"""

_COMMENTS = """
SELECT t.OWNER, t.TABLE_NAME, NULL, t.COMMENTS FROM ALL_TAB_COMMENTS{at} t WHERE t.COMMENTS IS NOT NULL AND {where}"""
_COLUMN_COMMENTS = """
SELECT t.OWNER, t.TABLE_NAME, t.COLUMN_NAME, t.COMMENTS FROM ALL_COL_COMMENTS{at} t WHERE t.COMMENTS IS NOT NULL AND {where}"""

_UNLOGGED = """
SELECT t.OWNER, t.TABLE_NAME, t.COLUMN_NAME, t.DATA_TYPE
FROM ALL_TAB_COLS{at} t
WHERE (t.DATA_TYPE = 'BFILE' OR t.DATA_TYPE_MOD = 'REF'
  OR EXISTS (SELECT 1 FROM ALL_COLL_TYPES y WHERE y.OWNER = t.DATA_TYPE_OWNER AND y.TYPE_NAME = t.DATA_TYPE)
  OR EXISTS (SELECT 1 FROM ALL_TYPE_ATTRS a WHERE a.OWNER = t.DATA_TYPE_OWNER AND a.TYPE_NAME = t.DATA_TYPE
             AND (a.ATTR_TYPE_MOD = 'REF' OR a.ATTR_TYPE_NAME = 'BFILE')))
  AND {where}
ORDER BY t.OWNER, t.TABLE_NAME, t.COLUMN_ID"""

_LOG_GROUPS = "SELECT t.OWNER, t.TABLE_NAME, t.LOG_GROUP_TYPE FROM ALL_LOG_GROUPS{at} t WHERE {where}"

_TABLE_OBJECTS: Final = "'TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION'"
_OBJECTS = f"""
SELECT t.OWNER, t.OBJECT_NAME, t.OBJECT_ID
FROM ALL_OBJECTS{{at}} t
WHERE t.OBJECT_TYPE IN ({_TABLE_OBJECTS}) AND t.OBJECT_NAME NOT LIKE 'BIN$%' AND {{where}}"""
_ORGANIZED = """
SELECT t.TABLE_OWNER, t.TABLE_NAME, o.OBJECT_ID
FROM ALL_INDEXES{at} t
JOIN ALL_OBJECTS{at} o ON o.OWNER = t.OWNER AND o.OBJECT_NAME = t.INDEX_NAME
WHERE t.INDEX_TYPE = 'IOT - TOP' AND o.OBJECT_TYPE LIKE 'INDEX%' AND t.TABLE_NAME NOT LIKE 'BIN$%' AND {where}"""
_NAMED_BY: Final = {
    _INDEXES: ("t.TABLE_OWNER", "t.TABLE_NAME"),
    _OBJECTS: ("t.OWNER", "t.OBJECT_NAME"),
    _ORGANIZED: ("t.TABLE_OWNER", "t.TABLE_NAME"),
}
"""The columns with the owner and the name of a table, where they are not ``OWNER`` and ``TABLE_NAME``."""

_Row = tuple[Any, ...]


class OracleCatalog:
    """Reads the catalog over one connection, which must be in the container of the tables."""

    def __init__(self, connection: Connection, config: OracleConfig) -> None:
        self.connection, self.config = connection, config
        self._filters = Filters(config)
        self._catalog = config.catalog_name

    def read_table_schemas(self, only: Iterable[TableId] | None = None) -> dict[TableId, TableSchema]:
        """Return the schemas of all tables that can be captured, or of those of the given tables that exist."""
        names = None if only is None else {(t.namespace, t.name) for t in only}
        return self._read(names, "")

    def needed_tables(self, needed: Callable[[TableId], bool]) -> dict[TableId, TableSchema]:
        """Return the schemas of the needed tables that can be captured.

        Of others only the names are read: there may be a hundred thousand.
        """
        return self.read_table_schemas([table for table in self._names(None, "") if needed(table)])

    def read_table(self, table: TableId, *, scn: int | None = None) -> TableSchema | None:
        """Return the schema of a table; ``None`` if it does not exist or cannot be captured.

        :param scn: as it was at this SCN. Oracle allows that only to users with the privilege FLASHBACK on the dictionary's
            views; to others, and when the undo does not reach so far back, the present structure is given.
        """
        names = {(table.namespace, table.name)}
        if scn is not None:
            try:
                return next(iter(self._read(names, f" AS OF SCN {int(scn)}").values()), None)
            except oracledb.DatabaseError as e:
                if code_of(e) not in _NO_FLASHBACK:
                    raise
                log.info("%s is read as of now, not as of SCN %d: %s", table, scn, e)
        return next(iter(self._read(names, "").values()), None)

    def read_table_sizes(self, tables: Iterable[TableId]) -> dict[TableId, tuple[int, int]]:
        """Rows and blocks of tables by the optimizer statistics; 0 without statistics."""
        names = {(t.namespace, t.name) for t in tables}
        rows = self._query(_TABLES, names, "") if names else []
        return {self._id(owner, name): (int(n or 0), int(blocks or 0)) for owner, name, n, blocks, *_ in rows}

    def create_statement(self, schema: TableSchema) -> str:
        """Return the CREATE TABLE statement of a table.

        It is from ``DBMS_METADATA``, or made from the schema if the user may not use that.
        """
        sql = "SELECT DBMS_METADATA.GET_DDL('TABLE', :name, :owner) FROM DUAL"
        try:
            text = fetch_scalar(self.connection, sql, name=schema.id.name, owner=schema.id.namespace)
        except oracledb.DatabaseError as e:
            log.debug("DBMS_METADATA has no DDL of %s: %s", schema.id, e)
            text = None
        return str(text).strip() if text else create_statement(schema)

    def find_unlogged_columns(self, tables: Iterable[TableId]) -> dict[TableId, list[str]]:
        """Return the columns for whose sake LogMiner shows no change of a table.

        These are BFILE, collections, references, and objects that have those.

        (Oracle Database Utilities, "Unsupported Data Types": "the entire table is ignored by LogMiner".)
        """
        names = {(t.namespace, t.name) for t in tables}
        unlogged: dict[TableId, list[str]] = defaultdict(list)
        for owner, name, column, kind in self._query(_UNLOGGED, names, "") if names else []:
            unlogged[self._id(owner, name)].append(f"{column} ({kind})")
        return unlogged

    def log_groups(self, tables: Iterable[TableId]) -> dict[TableId, set[str]]:
        """Return the kinds of supplemental logging that tables have."""
        names = {(t.namespace, t.name) for t in tables}
        groups: dict[TableId, set[str]] = defaultdict(set)
        for owner, name, kind in self._query(_LOG_GROUPS, names, "") if names else []:
            groups[self._id(owner, name)].add(str(kind))
        return groups

    # -- objects that the log has numbers of ---------------------------------------------------------------------------

    def read_object_numbers(self, tables: Iterable[TableId]) -> dict[int, TableId]:
        """Return the object numbers of tables.

        These are their own, those of their partitions, and of the index of an index-organized table.

        The log has the number of the partition, not that of its table; of an index-organized table, that of its index.
        """
        names = {(t.namespace, t.name) for t in tables}
        if not names:
            return {}
        rows = self._query(_OBJECTS, names, "") + self._query(_ORGANIZED, names, "")
        return {int(number): self._id(owner, name) for owner, name, number in rows}

    def table_of_object(self, number: int) -> TableId | None:
        """Return the current table of an object number; ``None`` if there is none, or it is in the recycle bin."""
        for sql, column in ((_OBJECTS, "t.OBJECT_ID"), (_ORGANIZED, "o.OBJECT_ID")):
            for owner, name, _ in fetch_rows(self.connection, sql.format(at="", where=f"{column} = :id"), id=number):
                return self._id(owner, name)
        return None

    def list_partitioned_tables(self) -> list[TableId]:
        """All tables that have partitions."""
        sql = (
            "SELECT t.OWNER, t.TABLE_NAME FROM ALL_TABLES t WHERE t.PARTITIONED = 'YES' ORDER BY t.OWNER, t.TABLE_NAME"
        )
        return [self._id(owner, name) for owner, name in fetch_rows(self.connection, sql)]

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        """Return whether the catalog as of the SCN can be read, and the object's name, if the object exists there."""
        sql = (
            f"SELECT t.OWNER, t.OBJECT_NAME FROM ALL_OBJECTS AS OF SCN {int(scn)} t"
            f" WHERE t.OBJECT_ID = :id AND t.OBJECT_TYPE IN ({_TABLE_OBJECTS})"
        )
        try:
            rows = fetch_rows(self.connection, sql, id=number)
        except oracledb.DatabaseError as e:
            if code_of(e) not in _NO_FLASHBACK:
                raise
            log.info("The table of object %d at SCN %d cannot be queried: %s", number, scn, e)
            return False, None
        return True, self._id(*rows[0]) if rows else None

    def read_stored_columns(self, table: TableId) -> list[tuple[str, bool, bool]]:
        """Return the columns in a table's stored rows, in their order in the row.

        Of each its name, whether it is the user's own, and whether its place is that of the table's structure. An index-organized
        table stores its key first.
        """
        organized = fetch_scalar(
            self.connection, "SELECT t.IOT_TYPE FROM ALL_TABLES t WHERE t.OWNER = :o AND t.TABLE_NAME = :n",
            o=table.namespace, n=table.name,
        )  # fmt: skip
        sql = (
            "SELECT t.COLUMN_NAME, t.HIDDEN_COLUMN, t.USER_GENERATED, t.COLUMN_ID FROM ALL_TAB_COLS t"
            " WHERE t.OWNER = :o AND t.TABLE_NAME = :n AND t.SEGMENT_COLUMN_ID IS NOT NULL AND t.VIRTUAL_COLUMN = 'NO'"
            " ORDER BY t.SEGMENT_COLUMN_ID"
        )
        stored, last = [], 0
        for name, hidden, by_user, place in fetch_rows(self.connection, sql, o=table.namespace, n=table.name):
            own = hidden == "NO" or by_user == "YES"
            stored.append((str(name), own, organized is None and place is not None and int(place) > last))
            last = int(place or last)
        return stored

    def read_hidden_columns(self, table: TableId) -> tuple[str, ...]:
        """Return the columns of a table that Oracle keeps for itself.

        These are of function-based indexes, of object types, and those set unused.
        """
        sql = (
            "SELECT t.COLUMN_NAME FROM ALL_TAB_COLS t WHERE t.OWNER = :o AND t.TABLE_NAME = :n"
            " AND t.HIDDEN_COLUMN = 'YES' AND t.USER_GENERATED = 'NO'"
        )
        return tuple(str(name) for (name,) in fetch_rows(self.connection, sql, o=table.namespace, n=table.name))

    def read_stored_formats(self) -> tuple[str, str, str]:
        """Character set, national character set and time zone of the database."""
        sql = "SELECT PARAMETER, VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER LIKE '%CHARACTERSET'"
        sets = dict(fetch_rows(self.connection, sql))
        zone = fetch_scalar(self.connection, "SELECT DBTIMEZONE FROM DUAL")
        return str(sets["NLS_CHARACTERSET"]), str(sets["NLS_NCHAR_CHARACTERSET"]), str(zone)

    # -- plumbing -----------------------------------------------------------------------------------------------------

    def _id(self, owner: str, name: str) -> TableId:
        return TableId(catalog=self._catalog, namespace=owner, name=name)

    def _read(self, names: set[tuple[str, str]] | None, at: str) -> dict[TableId, TableSchema]:
        if names is not None and not names:
            return {}
        columns: dict[TableId, list[_Row]] = defaultdict(list)
        keys: dict[TableId, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
        tables = self._names(names, at)
        for owner, name, *rest in self._query(_COLUMNS, names, at):
            columns[self._id(owner, name)].append(tuple(rest))
        for sql in (_CONSTRAINTS, _INDEXES):
            for owner, name, key, kind, column in self._query(sql, names, at):
                keys[self._id(owner, name)][kind, key].append(column)
        schemas = {table: self._schema(table, columns[table], keys[table]) for table in tables if columns[table]}
        return self._with_comments(schemas, names, at) if self.config.include_schema_comments else schemas

    def _with_comments(
        self, schemas: dict[TableId, TableSchema], names: set[tuple[str, str]] | None, at: str
    ) -> dict[TableId, TableSchema]:
        comments: dict[TableId, dict[str | None, str]] = defaultdict(dict)
        for sql in (_COMMENTS, _COLUMN_COMMENTS):
            for owner, name, column, text in self._query(sql, names, at):
                comments[self._id(owner, name)][column] = str(text)
        commented = dict(schemas)
        for table in comments.keys() & schemas.keys():
            schema, texts = schemas[table], comments[table]
            columns = tuple(c.with_comment(texts.get(c.name)) for c in schema.columns)
            commented[table] = schema.model_copy(update={"columns": columns, "comment": texts.get(None)})
        return commented

    def _names(self, names: set[tuple[str, str]] | None, at: str) -> list[TableId]:
        """Return the existing tables that can be captured."""
        external = {(owner, name) for owner, name in self._query(_EXTERNAL, names, at)}
        tables, misnamed = [], []
        for owner, name, _, _, iot_type, *_ in self._query(_TABLES, names, at):
            table = self._id(owner, name)
            if (owner, name) in external or is_system(table, self.config):
                if (
                    LIKELY_NAMES.fullmatch(name.upper())
                    and not is_system_schema(owner)
                    and self._filters.is_table_captured(table)
                ):
                    misnamed.append(str(table))
                continue
            if iot_type in (None, "IOT"):
                tables.append(table)
        if misnamed:
            _warn_once(
                misnamed,
                "%s: not captured, because Oracle uses such names for internal tables. Rename your tables.",
            )
        return tables

    def _query(self, sql: str, names: set[tuple[str, str]] | None, at: str) -> list[_Row]:
        owner, table = _NAMED_BY.get(sql, ("t.OWNER", "t.TABLE_NAME"))
        named = names if names is not None and len(names) <= MOST_NAMED else None
        binds: dict[str, str] = {}
        if names is None:
            where = f"{owner} NOT IN ({', '.join(quote_literal(name) for name in sorted(SYSTEM_SCHEMAS))})"
        elif named is not None:
            pairs = []
            for i, (schema, name) in enumerate(sorted(named)):
                binds |= {f"o{i}": schema, f"n{i}": name}
                pairs.append(f"({owner} = :o{i} AND {table} = :n{i})")
            where = f"({' OR '.join(pairs)})"
        else:
            schemas = sorted({schema for schema, _ in names})
            binds = {f"o{i}": schema for i, schema in enumerate(schemas)}
            where = f"{owner} IN ({', '.join(f':{bind}' for bind in binds)})"
        rows = fetch_rows(self.connection, sql.format(at=at, where=where), **binds)
        return rows if names is None or named is not None else [row for row in rows if (row[0], row[1]) in names]

    def _schema(self, table: TableId, rows: list[_Row], keys: dict[tuple[str, str], list[str]]) -> TableSchema:
        columns = [self._column(table, row) for row in rows if row[10] == "NO" or row[11] == "YES"]
        if (lost := [f"{c.name} ({_kind(c)})" for c in columns if c.type == NULL]) and self._filters.is_table_captured(
            table
        ):
            _warn_once([str(table), *lost], f"{table}: these columns cannot be captured and are always NULL: %s.", lost)
        candidates = [(kind == "P", key, tuple(names)) for (kind, key), names in keys.items()]
        return TableSchema(id=table, columns=tuple(columns), key=row_key(candidates, columns))

    def _column(self, table: TableId, row: _Row) -> Column:
        (
            name,
            type_name,
            type_owner,
            length,
            characters,
            precision,
            scale,
            nullable,
            identity,
            virtual,
            _,
            _,
            default,
        ) = row
        full = f"{type_owner}.{type_name}" if type_owner and not str(type_name).endswith("XMLTYPE") else str(type_name)
        if ColumnType.parse(full).base in TEXTS - {"ROWID"}:
            length = characters
        value, expression = (None, False) if identity == "YES" else self._default(default)
        return make_column(
            table, str(name), ColumnType.of_catalog(full, length, precision, scale), self.config,
            nullable=nullable == "Y", default=value, default_is_expression=expression, generated=virtual == "YES",
            auto_incremented=identity == "YES",
        )  # fmt: skip

    def _default(self, text: str | None) -> tuple[str | None, bool]:
        """Value of a default and whether it is an expression."""
        value, expression = default_of(text)
        constant = self.evaluate_constant(value) if expression and value else None
        return (value, expression) if constant is None else (constant, False)

    def evaluate_constant(self, text: str) -> str | None:
        """Return the value of a constant expression; ``None`` for other expressions."""
        return evaluate_constant(self.connection, text)


_NO_FLASHBACK = {942, 1031, 1466, 1555, 8180, 8181, 22818, 38029}


def _kind(column: Column) -> str:
    return "virtual" if column.declared.generated else ColumnType.from_column(column).ddl_expression


def _warn_once(names: list[str], message: str, shown: list[str] | None = None) -> None:
    """Log a warning once per process."""
    key = tuple(names)
    if key not in _warned:
        _warned.add(key)
        log.warning(message, ", ".join(names if shown is None else shown))


_warned: set[tuple[str, ...]] = set()
