"""The plugin's app, asked over HTTP within this process, as users with Airflow's own roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.core_api.security import get_user
from airflow.sdk import DAG
from fastapi.testclient import TestClient

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.authorization import KnownConnection, KnownDag
from airflow_provider_cdc.plugins.plugin_app import app
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.airflow.airflow_connector import ShopConnector, connect, make_shop
from tests.support.airflow.airflow_versions import set_auth_manager, simple_user

MAY_READ = {"ann": {"shop_dag"}, "bob": {"billing_dag"}}
ClientFactory = Callable[..., TestClient]


class PerDag(SimpleAuthManager):
    """Rights on single DAGs, which Airflow's own simple manager does not have: of users in :data:`MAY_READ`, those that are there."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **more: Any) -> bool:
        if user.username in MAY_READ and (details is None or details.id not in MAY_READ[user.username]):
            return False
        return bool(super().is_authorized_dag(user=user, details=details, **more))


@pytest.fixture(scope="session")
def metadata() -> None:
    """Airflow's own tables, in the database of this test process."""
    from airflow import settings
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.utils.db import synchronize_log_template
    from airflow.utils.session import create_session

    import_all_models()
    Base.metadata.create_all(settings.engine)
    with create_session() as session:
        synchronize_log_template(session=session)


def known_to_airflow(*dags: DAG, paused: bool = False) -> None:
    """Have Airflow know these DAGs and no others, as if it had parsed their file."""
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    with create_session() as session:
        session.execute(sa.update(DagModel).values(is_stale=True))
        if session.get(DagBundleModel, "tests") is None:
            session.add(DagBundleModel(name="tests"))
    with create_session() as session:
        parsed, errors = [LazyDeserializedDAG.from_dag(dag) for dag in dags], dict[tuple[str, str], str]()
        update_dag_parsing_results_in_db("tests", None, parsed, errors, None, set(), session)
        assert not errors
        known = DagModel.dag_id.in_([dag.dag_id for dag in dags])
        session.execute(sa.update(DagModel).where(known).values(is_paused=paused))


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, metadata: None) -> Iterator[ShopConnector]:
    """A connector ``shop``, which a DAG has captured once."""
    set_auth_manager(monkeypatch, PerDag())
    monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Enabled")
    # DAGs that have captured are not parsed here
    monkeypatch.setattr(authorization, "known_dags", lambda ids: {id_: KnownDag(id_) for id_ in ids})
    monkeypatch.setattr(authorization, "known_connections", lambda prefix, kinds: [KnownConnection("shop", "memory")])
    monkeypatch.setattr(authorization, "teams_of", lambda conn_ids: {})
    shop_connector = make_shop(monkeypatch, tmp_path, "pages")
    capture(shop_connector)
    yield shop_connector
    app.dependency_overrides.clear()
    shop_connector.store.close()


@pytest.fixture
def fleet(shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> ShopConnector:
    """With ``billing``, which another DAG has captured, and ``script``, which none has."""
    for name, dag in (("billing", "billing_dag"), ("script", None)):
        database = MemoryDatabase(name)
        database.create_table("inventory.orders", {"id": "int64"}, key=("id",))
        connect(monkeypatch, name, conn_type="cdc_memory", host=name)
        capture(shop_connector, name, dag)
    return shop_connector


def capture(shop_connector: ShopConnector, name: str = "shop", dag: str | None = "shop_dag") -> None:
    """Run the capture of the connector once."""
    definition = ConnectorDefinition(name, "memory", shop_connector.definition.changelog, {"poll.interval.ms": 10})
    access = ConnectorAccess(definition, name)
    with access.prepare_capture(owner="test", lease_ttl_s=5, lease_wait_s=5, dag=dag) as run:
        run.run()


@pytest.fixture
def client_factory() -> ClientFactory:
    """A client as a user with a role of Airflow's; without one no one is logged in."""

    def client(name: str = "ada", role: str | None = "ADMIN", teams: Sequence[str] = ()) -> TestClient:
        app.dependency_overrides.clear()
        if role is not None:
            user = simple_user(name, role, teams)
            app.dependency_overrides[get_user] = lambda: user
        return TestClient(app, raise_server_exceptions=False)

    return client
