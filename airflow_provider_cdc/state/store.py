"""The state store: everything that is kept of connectors, over SQLAlchemy.

Works on PostgreSQL, MySQL and SQLite, the databases that Airflow itself works on. Every write that matters is one short
transaction that names the lease's epoch and the version it expects.
"""

from __future__ import annotations

from airflow_provider_cdc.state.connectors import Connectors
from airflow_provider_cdc.state.notifications import Notifications
from airflow_provider_cdc.state.offsets import Offsets
from airflow_provider_cdc.state.signals import Signals


class StateStore(Offsets, Signals, Notifications, Connectors):
    """See :class:`airflow_provider_cdc.core.seams.StateStore`; more for people is in the modules that it is made of.

        >>> store = StateStore("postgresql+psycopg://airflow:***@db/airflow")
        >>> store.load("shop").offset.seq
        1204

    :param url: SQLAlchemy URL
    :param schema: database schema of the tables, as Airflow's ``[database] sql_alchemy_schema``
    :param lease_ttl_s: how long a lease lives without being renewed; a run that dies frees the connector after this time
    :param patience_s: how long an unreachable database is tried again
    :raises StateError: the URL cannot be used
    """
