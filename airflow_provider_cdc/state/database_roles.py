"""The SQL statements that create a database role for the state tables. The role may use these tables and nothing else.

Tasks reach the state tables by an Airflow connection. If that connection held Airflow's own login, every user who can read it could read and
change all of Airflow: users, variables, connections.

    >>> from sqlalchemy import make_url
    >>> role_sql(make_url("mysql+pymysql://airflow@db/airflow"), "cdc", "sesame", plain=True)[0]
    "CREATE USER 'cdc'@'%' IDENTIFIED BY 'sesame'"

The statements contain a hash of the password, as the server itself stores it. The password is only in the Airflow connection.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import string

from sqlalchemy.engine import URL

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.state.models import VERSION_TABLE, Base

_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"
_CRYPT = "./" + string.digits + string.ascii_uppercase + string.ascii_lowercase
_ITERATIONS = 4096
_ROUNDS = 5000
_ORDER = [(0, 10, 20), (21, 1, 11), (12, 22, 2), (3, 13, 23), (24, 4, 14), (15, 25, 5), (6, 16, 26), (27, 7, 17), (18, 28, 8), (9, 19, 29)]  # fmt: skip
"""The bytes of a SHA-256 digest in the order in which crypt writes them."""


def role_sql(
    url: URL, role: str, password: str, schema: str | None = None, *, plain: bool = False, require_tls: bool = False
) -> list[str]:
    """Build the statements for an administrator of the database, one by one.

    The last ones may be run again after an upgrade.

    :param url: of the database that the tables are in, with Airflow's own login, which keeps the right to create tables
    :param schema: of the tables, where it is not the default one (PostgreSQL)
    :param plain: write the password itself, for servers that know no such hash (MariaDB)
    :param require_tls: reject logins without TLS (MySQL)
    :raises ConfigError: the database knows no roles, or has no such option
    """
    dialect = url.get_backend_name()
    if dialect not in ("postgresql", "mysql", "mariadb") or not url.database:
        raise ConfigError(
            f"A database of the kind {dialect} has no roles.",
            safe="Nothing was changed.",
            remedy=f"`{format_cdc_command('setup')}` without --role; every user who can read the file can read all its data",
        )
    if dialect == "postgresql":
        if require_tls:
            raise ConfigError(
                "A role of PostgreSQL has no option that requires TLS.",
                safe="Nothing was changed.",
                remedy=f"write a line with hostssl for the role {role} into pg_hba.conf, and omit --require-tls",
            )
        return _postgresql(url, role, password if plain else scram_verifier(password), schema)
    identified = f"IDENTIFIED BY {_my_text(password)}"
    if not plain:
        identified = f"IDENTIFIED WITH caching_sha2_password AS {_my_text(caching_sha2_hash(password))}"
    return _mysql(url, role, identified + " REQUIRE SSL" * require_tls, schema)


def _postgresql(url: URL, role: str, password: str, schema: str | None) -> list[str]:
    name, namespace = _pg_name(role), _pg_name(schema or "public")
    tables = ", ".join(f"{namespace}.{_pg_name(table)}" for table in sorted(Base.metadata.tables))
    counted = ", ".join(
        f"{namespace}.{_pg_name(f'{table.name}_{column.name}_seq')}"
        for table in Base.metadata.sorted_tables
        if (column := table.autoincrement_column) is not None
    )
    # until PostgreSQL 14 everyone may create functions in the schema public, which the sessions of Airflow's own login search
    owner = [f"GRANT CREATE ON SCHEMA public TO {_pg_name(url.username)}"] if url.username else []
    return [
        f"CREATE ROLE {name} LOGIN PASSWORD {_pg_text(password)}",
        *owner,
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {_pg_name(url.database or '')} TO {name}",
        f"GRANT USAGE ON SCHEMA {namespace} TO {name}",
        f"GRANT SELECT ON {namespace}.{_pg_name(VERSION_TABLE)} TO {name}",
        f"GRANT {_RIGHTS} ON {tables} TO {name}",
        f"GRANT USAGE, SELECT, UPDATE ON SEQUENCE {counted} TO {name}",
    ]


def _mysql(url: URL, role: str, identified: str, schema: str | None) -> list[str]:
    account = f"{_my_text(role)}@'%'"
    namespace = _my_name(schema or url.database or "")
    grants = [
        f"GRANT {_RIGHTS} ON {namespace}.{_my_name(table)} TO {account}" for table in sorted(Base.metadata.tables)
    ]
    version = f"GRANT SELECT ON {namespace}.{_my_name(VERSION_TABLE)} TO {account}"
    return [f"CREATE USER {account} {identified}", version, *grants]


def _pg_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _pg_text(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if "\\" not in text else "E'" + quoted.replace("\\", "\\\\") + "'"


def _my_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _my_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def scram_verifier(password: str) -> str:
    """Return the SCRAM-SHA-256 verifier that PostgreSQL stores (RFC 5802).

    PostgreSQL prepares passwords by SASLprep first; ASCII passwords, such as generated ones, stay the same.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    return f"SCRAM-SHA-256${_ITERATIONS}:{_base64(salt)}${_base64(client)}:{_base64(server)}"


def caching_sha2_hash(password: str) -> str:
    """Return the string of MySQL's ``caching_sha2_password``: SHA-256 crypt with 5000 rounds and a salt of 20 characters."""
    salt = "".join(secrets.choice(_CRYPT) for _ in range(20))
    return f"$A$005${salt}{sha256_crypt(password.encode(), salt.encode())}"


def sha256_crypt(password: bytes, salt: bytes) -> str:
    """Return the digest of SHA-256 crypt.

    >>> sha256_crypt(b"Hello world!", b"saltstring")
    '5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5'
    """
    other = hashlib.sha256(password + salt + password).digest()
    text = password + salt + _repeat(other, len(password))
    length = len(password)
    while length:
        text += other if length & 1 else password
        length >>= 1
    digest = hashlib.sha256(text).digest()
    p = _repeat(hashlib.sha256(password * len(password)).digest(), len(password))
    s = _repeat(hashlib.sha256(salt * (16 + digest[0])).digest(), len(salt))
    for i in range(_ROUNDS):
        text = (p if i & 1 else digest) + (s if i % 3 else b"") + (p if i % 7 else b"") + (digest if i & 1 else p)
        digest = hashlib.sha256(text).digest()
    groups = [_crypt64((digest[a] << 16) | (digest[b] << 8) | digest[c], 4) for a, b, c in _ORDER]
    return "".join(groups) + _crypt64((digest[31] << 8) | digest[30], 3)


def _repeat(data: bytes, length: int) -> bytes:
    return (data * (length // len(data) + 1))[:length]


def _crypt64(value: int, characters: int) -> str:
    return "".join(_CRYPT[(value >> 6 * i) & 63] for i in range(characters))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
