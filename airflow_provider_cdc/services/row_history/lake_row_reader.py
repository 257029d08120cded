"""Reads the rows of a key from a table of Delta or Iceberg without Spark, by the libraries ``deltalake`` and ``pyiceberg``.

Both look for the key in the statistics of the table's files first, and read those files that may have it; both leave out rows that deletion vectors or delete files
say are gone. A library rejects a table that it cannot read; then nothing is known of the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_cdc.changelog.files.storage import Storage

ColumnValues = Mapping[str, Any]
"""Column of the table → the value that it has to have, as JSON has values of the change log; ``None`` = NULL."""
_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?|(\d+)-.*(\.gz)?\.metadata\.json(\.gz)?")
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")


_VARIANT = re.compile("variant", re.IGNORECASE)
_NO_VARIANTS = "it has a column of type VARIANT, which {library} does not read as values: query the table in Spark"


class TargetNotInspected(Exception):
    """The reason why a target is not inspected."""


def rows_of(
    kind: str, path: str, catalog: Mapping[str, str], storage: Storage, column_values: ColumnValues
) -> pa.Table:
    """Read the rows of a table that have some values.

    :param kind: ``delta`` or ``iceberg``
    :param path: where its files are
    :param catalog: of a table that is known by a name: ``name`` of the table in the catalog, and more
    :param storage: of the change log: tables on the same kind of store are read with the same options
    :raises NotLookedAt: it cannot be read here
    """
    readers: Mapping[str, Callable[..., pa.Table]] = {"delta": _of_delta, "iceberg": _of_iceberg}
    if kind not in readers:
        raise TargetNotInspected(f"tables of the kind {kind} can be read with Spark only: query the table directly")
    library = {"delta": "deltalake", "iceberg": "pyiceberg"}[kind]
    try:
        return readers[kind](path, catalog, storage, column_values)
    except TargetNotInspected:
        raise
    except ImportError as e:
        raise TargetNotInspected(
            f"the Python package {e.name or library} is not installed here: pip install 'airflow-provider-cdc[{kind}]', or query the table directly"
        ) from None
    except Exception as e:  # those of the library, of Arrow, of every store: none of them says anything of the row
        if _VARIANT.search(str(e)):
            raise TargetNotInspected(_NO_VARIANTS.format(library=library)) from None
        error_text = str(e).splitlines()[0][:300] if str(e) else type(e).__name__
        raise TargetNotInspected(f"{library} cannot read the table here: {error_text}; query the table directly") from e


# -- Delta ------------------------------------------------------------------------------------------------------------


def _of_delta(path: str, catalog: Mapping[str, str], storage: Storage, column_values: ColumnValues) -> pa.Table:
    import deltalake
    import pyarrow as pa

    url = path.replace("s3a://", "s3://")
    table = deltalake.DeltaTable(url, storage_options=_of_object_store(storage.options_for(url)))
    if any(_VARIANT.match(str(field.type)) for field in table.schema().fields):  # it would give bytes
        raise TargetNotInspected(_NO_VARIANTS.format(library="deltalake"))
    types = {field.name: str(getattr(field.type, "type", "")) for field in table.schema().fields}
    conditions = [
        f"{_quoted(name)} IS NULL" if value is None else f"{_quoted(name)} = {_literal(value, types[name])}"
        for name, value in _named(column_values, list(types)).items()
    ]
    builder = deltalake.QueryBuilder().register("t", table)
    return pa.table(builder.execute(f"SELECT * FROM t WHERE {' AND '.join(conditions)}").read_all())


def _of_object_store(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of s3fs as those of Rust's object_store; options that are not given come from the environment, as with other clients."""
    client = options.get("client_kwargs") or {}
    candidates = {
        "aws_access_key_id": options.get("key"), "aws_secret_access_key": options.get("secret"), "aws_session_token": options.get("token"),
        "aws_endpoint_url": options.get("endpoint_url") or client.get("endpoint_url"), "aws_region": client.get("region_name"),
    }  # fmt: skip
    given_options = {name: str(value) for name, value in candidates.items() if value}
    if given_options.get("aws_endpoint_url", "").startswith("http:"):
        given_options["aws_allow_http"] = "true"
    return given_options


def _quoted(text: str, mark: str = '"') -> str:
    return f"{mark}{text.replace(mark, mark * 2)}{mark}"


def _literal(value: Any, type_: str) -> str:
    """Format a value in the SQL of DataFusion, in which a text has no escapes but the doubled quote.

    >>> _literal("it's", "string"), _literal("1.50", "decimal(8,2)"), _literal("AQ==", "binary")
    ("'it''s'", "CAST('1.50' AS DECIMAL(8,2))", "X'01'")

    :raises NotLookedAt: nothing can be compared with such a column
    """
    import base64

    text = _quoted(_text(value), "'")
    if type_ == "string":
        return text
    if type_ in ("byte", "short", "integer", "long"):
        return str(int(value))
    if type_ in ("float", "double"):
        return f"CAST({text} AS {type_.upper()})"
    if type_ == "boolean":
        return str(bool(value)).upper()
    if type_ == "binary":
        return f"X'{base64.b64decode(value).hex()}'"
    if type_ == "date":
        return f"CAST({text} AS DATE)"
    if type_ == "timestamp":
        return f"arrow_cast({text}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if type_ == "timestamp_ntz":
        return f"arrow_cast({text}, 'Timestamp(Microsecond, None)')"
    if _DECIMAL.fullmatch(type_):
        return f"CAST({text} AS {type_.upper()})"
    raise TargetNotInspected(f"a column of its key has the type {type_}: query the table directly")


# -- Iceberg ----------------------------------------------------------------------------------------------------------


def _of_iceberg(path: str, catalog: Mapping[str, str], storage: Storage, column_values: ColumnValues) -> pa.Table:
    from pyiceberg import expressions

    builder: Any = expressions  # its annotations know no names of columns
    table = _iceberg_table(path, catalog, storage)
    types = {field.name: str(field.field_type) for field in table.schema().fields}
    conditions = [
        builder.IsNull(name) if value is None else builder.EqualTo(name, _value(value, types[name]))
        for name, value in _named(column_values, list(types)).items()
    ]
    condition = conditions[0] if len(conditions) == 1 else builder.And(*conditions)
    return table.scan(row_filter=condition).to_arrow()


def _iceberg_table(path: str, catalog: Mapping[str, str], storage: Storage) -> Any:
    """Open a table of Iceberg.

    :raises NotLookedAt: it cannot be found
    """
    from pyiceberg.table import StaticTable

    if name := catalog.get("name"):
        return _of_catalog(name)
    url = path.replace("s3a://", "s3://")
    files, folder = storage.resolve_url(url)
    files.invalidate_cache(f"{folder}/metadata")
    names = [str(file).rstrip("/").rsplit("/", 1)[-1] for file in files.ls(f"{folder}/metadata", detail=False)]
    versions = {
        int(match[1] or match[4]): file_name for file_name in names if (match := _METADATA.fullmatch(file_name))
    }
    if not versions:
        raise TargetNotInspected(f"no table exists at {path}")
    options, client = storage.options_for(url), storage.options_for(url).get("client_kwargs") or {}
    candidates = {
        "s3.access-key-id": options.get("key"), "s3.secret-access-key": options.get("secret"), "s3.session-token": options.get("token"),
        "s3.endpoint": options.get("endpoint_url") or client.get("endpoint_url"), "s3.region": client.get("region_name"),
    }  # fmt: skip
    properties = {name: str(value) for name, value in candidates.items() if value}
    return StaticTable.from_metadata(f"{url}/metadata/{versions[max(versions)]}", properties)


def _of_catalog(name: str) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog, *table = _parts(name)
    try:
        return load_catalog(catalog).load_table(tuple(table))
    except NoSuchTableError:
        raise TargetNotInspected(f"the catalog {catalog} of PyIceberg's configuration has no table {name}") from None
    except ImportError:
        raise
    except Exception as e:
        error_text = str(e).splitlines()[0][:300] if str(e) else type(e).__name__
        raise TargetNotInspected(
            f"PyIceberg cannot open the catalog {catalog}: {error_text}; configure it with PYICEBERG_CATALOG__{catalog.upper()}__URI and similar variables, or in .pyiceberg.yaml"
        ) from e


def _parts(name: str) -> list[str]:
    """Split a table's name into its parts, of which those with a dot are quoted with backquotes.

    >>> _parts("lake.shop.`orders.2024`")
    ['lake', 'shop', 'orders.2024']
    """
    parts = re.findall(r"`((?:[^`]|``)*)`|([^`.]+)", name)
    return [quoted.replace("``", "`") if quoted else plain for quoted, plain in parts]


def _value(value: Any, type_: str) -> Any:
    """Convert a value to the form that PyIceberg takes for a column.

    :raises NotLookedAt: nothing can be compared with such a column
    """
    import base64

    if type_ == "string":
        return _text(value)
    if type_ in ("int", "long"):
        return int(value)
    if type_ in ("float", "double"):
        return float(value)
    if type_ == "boolean":
        return bool(value)
    if type_ in ("date", "timestamp", "timestamptz"):
        return _text(value).replace(" ", "T").replace("Z", "+00:00")
    if type_ == "binary":
        return base64.b64decode(value)
    if _DECIMAL.fullmatch(type_):
        return Decimal(value)
    raise TargetNotInspected(f"a column of its key has the type {type_}: query the table directly")


# -- both -------------------------------------------------------------------------------------------------------------


def _named(column_values: ColumnValues, columns: list[str]) -> dict[str, Any]:
    """By the names that the table has.

    :raises NotLookedAt: it does not have one of them
    """
    there = {name.casefold(): name for name in columns}
    if missing := [name for name in column_values if name.casefold() not in there]:
        raise TargetNotInspected(f"the table has no column {missing[0]} of the key: query the table directly")
    return {there[name.casefold()]: value for name, value in column_values.items()}


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
