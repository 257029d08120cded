"""Names of a user's own account, databases and tables, written into the statements of :mod:`airflow_provider_cdc.sources.grants`.

Each kind of source has its quotes. Names of SQL are as a statement has them: a simple one is not quoted, and one in double quotes keeps its case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_cdc.core.errors import ConfigError

_COMMENTS = ("--", "//")
_SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9_$#]*")
_QUOTED = re.compile(r'"(?:[^"]|"")+"')
_TABLE = re.compile(r'("(?:[^"]|"")+"|[^".]+)\.("(?:[^"]|"")+"|[^".]+)')
_LOCAL_ACCOUNT = re.compile(r"(?<![#.\w])cdc(?![#\w])")
_ROLE = re.compile(r"(?<![\w.'])cdc(?=[ ;])")
_DB2_ACCOUNT = re.compile(r"(?<=USER )(?:CDC|cdc)\b")


@dataclass(frozen=True, slots=True)
class GrantNames:
    """The names that replace those of the examples; those that are not given stay.

    :param account: with MySQL and MariaDB also ``NAME@HOST``
    :param databases: of MySQL, MariaDB and MongoDB; a signal table is in the first one
    :param tables: of Oracle, Db2 and PostgreSQL, as ``SCHEMA.TABLE``
    """

    account: str | None = None
    databases: Sequence[str] = ()
    tables: Sequence[str] = ()

    def replace_names(self, kind: str, text: str) -> str:
        """Return statements with these names.

            >>> GrantNames("reader", ["shop_eu"]).replace_names("mysql", "GRANT SELECT ON shop.* TO 'cdc'@'%';")
            "GRANT SELECT ON `shop\\\\_eu`.* TO 'reader'@'%';"

        :raises ConfigError: a name cannot be used, or the kind has no such names
        """
        self._check(kind)
        name_account, objects = _KINDS[kind](self)
        lines = []
        for line in text.splitlines():
            if line.startswith(_COMMENTS):
                lines.append(line)
                continue
            named = name_account(line) if self.account is not None and line else line
            if line and not named:
                continue
            found = [one for one in objects if any(example in named for example in one)]
            lines += [_replace(named, one) for one in found] or [named]
        return "\n".join(lines)

    def _check(self, kind: str) -> None:
        wrong = (
            ("tables", self.tables, "database") if kind in _WITH_DATABASES else ("databases", self.databases, "table")
        )
        if wrong[1]:
            raise ConfigError(f"The grants for {kind} name no {wrong[0]}.", remedy=f"use --{wrong[2]}")
        for name in (*([] if self.account is None else [self.account]), *self.databases, *self.tables):
            if not name.strip() or not name.isprintable():
                raise ConfigError(f"{name!r} is not a name.", remedy="give the name as the database has it")


def _replace(line: str, names: Mapping[str, str]) -> str:
    for example, name in names.items():
        line = line.replace(example, name)
    return line


_Replacement = tuple[Callable[[str], str], list[dict[str, str]]]


def _mysql(names: GrantNames) -> _Replacement:
    user, _, host = (names.account or "").rpartition("@") if "@" in (names.account or "") else (names.account, "", "%")
    account = f"{_mysql_text(user or '')}@{_mysql_text(host)}"
    objects = []
    for number, database in enumerate(names.databases):
        quoted = database.replace("`", "``")
        # in the database of a GRANT, these two stand for any characters
        escaped = re.sub("[_%]", lambda found: "\\" + found[0], quoted)
        found = {"shop.*": f"`{escaped}`.*"}
        objects.append(found if number else {**found, "shop.cdc_signal": f"`{quoted}`.cdc_signal"})
    return lambda line: line.replace("'cdc'@'%'", account), objects


def _mysql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _mongodb(names: GrantNames) -> _Replacement:
    account = json.dumps(names.account, ensure_ascii=False)
    quoted = [json.dumps(database, ensure_ascii=False) for database in names.databases]
    read, write = '{role: "read", db: "shop"}', 'db: "shop"'
    objects = (
        [{read: ", ".join(f'{{role: "read", db: {one}}}' for one in quoted), write: f"db: {quoted[0]}"}]
        if quoted
        else []
    )
    return lambda line: line.replace('"cdc"', account), objects


def _oracle(names: GrantNames) -> _Replacement:
    account = _sql_name(names.account or "")
    local = re.sub('^("?)c##', r"\1", account, flags=re.IGNORECASE)
    is_common = local != account
    text = _catalog_name(local).replace("'", "''")

    def name_account(line: str) -> str:
        line = _LOCAL_ACCOUNT.sub(lambda _: local, line.replace("'CDC'", f"'{text}'")).replace("c##cdc", account)
        if is_common:
            return line
        # an account of one database enters no other container
        line = line.replace("SET CONTAINER, ", "").replace(" CONTAINER=ALL", "")
        return "" if line.startswith("GRANT SET CONTAINER ") else line

    return name_account, [{"inventory.customers": ".".join(_split_table(table))} for table in names.tables]


def _db2(names: GrantNames) -> _Replacement:
    account = _sql_name(names.account or "")
    objects = []
    for table in names.tables:
        schema, name = _split_table(table)
        change_table = f"CDC_{_catalog_name(schema)}_{_catalog_name(name)}"
        quoted = change_table if _SIMPLE.fullmatch(change_table) and change_table.isupper() else _quote(change_table)
        objects.append({"INVENTORY.CUSTOMERS": f"{schema}.{name}", "CDC_INVENTORY_CUSTOMERS": quoted})
    return lambda line: _DB2_ACCOUNT.sub(lambda _: account, line), objects


def _postgresql(names: GrantNames) -> _Replacement:
    account = _sql_name(names.account or "")
    objects = []
    for table in names.tables:
        schema, name = _split_table(table)
        objects.append({"shop.orders": f"{schema}.{name}", "SCHEMA shop ": f"SCHEMA {schema} "})
    return lambda line: _ROLE.sub(lambda _: account, line), objects


def _sql_name(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) or _QUOTED.fullmatch(name) else _quote(name)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _catalog_name(name: str) -> str:
    """Return a name as the catalog has it, by the one in a statement."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.upper()


def _split_table(text: str) -> tuple[str, str]:
    """Split a name into schema and table, as a statement has them.

    :raises ConfigError: it is no such name
    """
    found = _TABLE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is not SCHEMA.TABLE.", remedy='quote names with dots: "MY.SCHEMA".CUSTOMERS')
    return _sql_name(found[1]), _sql_name(found[2])


_WITH_DATABASES = {"mysql", "mariadb", "mongodb"}
_KINDS: Mapping[str, Callable[[GrantNames], _Replacement]] = {
    "mysql": _mysql, "mariadb": _mysql, "mongodb": _mongodb, "oracle": _oracle, "db2": _db2,
    "postgresql": _postgresql,
}  # fmt: skip
