"""The connection to the state tables.

Its password is a SQLAlchemy URL, so that it is encrypted and never shown; ``schema`` in its extra is the database schema of
the tables. ``airflow cdc setup`` makes it from the URL of Airflow's metadata DB.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, StateError, StateUnavailable
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.hooks.airflow_compat import AirflowNotFoundException
from airflow_provider_cdc.hooks.connection_lookup import load_connection

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

DEFAULT_CONN_ID = "cdc_state_default"


class StateAddress(NamedTuple):
    """The address of the state tables. ``url`` may hold a password."""

    url: str
    schema: str | None


def address_of(connection: Connection) -> StateAddress:
    """Return the address that a connection holds.

    :raises StateError: the connection holds no URL
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    if not connection.password:
        raise StateError(
            f"Connection {connection.conn_id} has no URL.",
            safe="Nothing was read or changed.",
            remedy=f"set its password to a SQLAlchemy URL, or create it again: `{format_cdc_command('setup', conn_id=connection.conn_id, replace=True)}`",
        )
    try:
        if password := make_url(connection.password).password:
            mask_secret(password)
    except ArgumentError:
        pass  # an error is raised when it is opened
    schema = connection.extra_dejson.get("schema")
    return StateAddress(connection.password, str(schema) if schema else None)


class CdcStateHook(BaseHook):
    """The state tables.

    :param conn_id: Airflow connection of type ``cdc_state``
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "cdc_state"
    hook_name = "CDC: state database"

    def __init__(self, conn_id: str = DEFAULT_CONN_ID) -> None:
        super().__init__()
        self.conn_id = conn_id

    def resolve_address(self) -> StateAddress:
        """Return the address of the state tables.

        :raises StateError: there is no such connection, or it holds no URL
        :raises ConnectionUnavailable: Airflow could not look the connection up
        """
        try:
            connection = load_connection(self.conn_id)
        except AirflowNotFoundException:
            raise build_connection_error(self.conn_id) from None
        return address_of(connection)

    def get_conn(self, *, address: StateAddress | None = None, **options: Any) -> StateStore:
        """Return the store; close it after use.

        :param address: if it is looked up already
        :param options: as of :class:`~airflow_provider_cdc.state.state_store.StateStore`
        """
        from airflow_provider_cdc.state.state_store import StateStore

        url, schema = address or self.resolve_address()
        return StateStore(url, schema=schema, **options)

    @contextlib.contextmanager
    def open_store(self, **options: Any) -> Iterator[StateStore]:
        """Open the store after a check that its tables exist, and close it at the end.

        :raises StateError: there is no such connection, or the tables are missing
        """
        store = self.get_conn(**options)
        try:
            store.check_tables()
            yield store
        finally:
            store.close()

    def test_connection(self) -> tuple[bool, str]:
        """Check whether the state tables are there."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self.open_store(patience_s=0):
                pass
        except CdcError as e:
            return False, describe_error(e)
        except SQLAlchemyError as e:
            return False, f"The database cannot be reached: {getattr(e, 'orig', e)}"
        return True, "The state tables exist."


def records_of(store: StateStore, names: Collection[str]) -> dict[str, ConnectorRecord | Exception | None]:
    """Read the records of connectors by one query.

    If that cannot be read, such as an offset of a later release, the result has the error instead.

    :raises StateUnavailable: the database cannot be reached
    """
    try:
        records = store.load_records(names)
    except StateUnavailable:
        raise
    except Exception as e:
        if len(names) == 1:
            return dict.fromkeys(names, e)
        return {name: records_of(store, [name])[name] for name in names}
    return {name: records.get(name) for name in names}


@contextlib.contextmanager
def translate_database_errors() -> Iterator[None]:
    """Separate errors of the database that pass from others.

    Never use it in an event loop: importing SQLAlchemy takes its time.

    :raises StateUnavailable: the database cannot be reached, or has closed the connection
    """
    from sqlalchemy.exc import DBAPIError

    from airflow_provider_cdc.state.state_database import is_retryable_error

    try:
        yield
    except DBAPIError as e:
        if is_retryable_error(e):
            raise StateUnavailable(f"The state database cannot be queried: {e.orig or e}") from e
        raise


def build_connection_error(conn_id: str) -> StateError:
    """Build the error for a state connection that does not exist."""
    return StateError(
        f"Connection {conn_id} to the state tables does not exist.",
        safe="Nothing was read; no offset was touched.",
        remedy=format_cdc_command("setup", conn_id=conn_id),
    )
