"""Routes of the plugin's pages. They read the state tables and manifests. A user needs Airflow's right to see assets, and for each
connector the right to see the DAG that captures it.

FastAPI evaluates annotations: everything they name is imported at module level.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_asset
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.spi.records import ConnectorRecord
from airflow_provider_cdc.hooks import status_texts
from airflow_provider_cdc.hooks.connector import access_of
from airflow_provider_cdc.hooks.openmetrics import CONTENT_TYPE, openmetrics
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.plugins import pages
from airflow_provider_cdc.plugins.rights import may_see
from airflow_provider_cdc.state.store import StateStore

_NEWEST = 20
"""Signals and notifications that a page shows."""

app = FastAPI(
    title="Change data capture",
    dependencies=[Depends(requires_access_asset("GET"))],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


@app.get("/", response_class=HTMLResponse)
def connectors(request: Request, user: GetUserDep) -> str:
    """All connectors that the user may see."""
    with _store() as store:
        return pages.connectors(_base(request), [row for row in store.connectors() if may_see(user, row)])


@app.get("/connectors.json")
def connectors_json(user: GetUserDep) -> list[dict[str, Any]]:
    """All connectors that the user may see, for programs."""
    with _store() as store:
        return [status_texts.summary(row) for row in store.connectors() if may_see(user, row)]


@app.get("/metrics")
def metrics(user: GetUserDep) -> Response:
    """What was measured of all connectors that the user may see, as OpenMetrics text."""
    with _store() as store:
        seen = {row.connector for row in store.connectors() if may_see(user, row)}
        found = [series for series in store.metrics.of() if series.connector in seen]
    return Response(openmetrics(found), media_type=CONTENT_TYPE)


@app.get("/connectors/{connector}", response_class=HTMLResponse)
def connector(request: Request, user: GetUserDep, connector: str, limit: int = 50) -> str:
    """One connector with its newest batches."""
    with _store() as store:
        row = _found(store, connector, user)
        batches = store.batches(connector, limit=max(1, min(limit, 1000)))
        signals, notifications = store.signals_of(connector, _NEWEST), store.notifications(connector, limit=_NEWEST)
    reports, works, trouble = status_texts.beside_changelog(row)
    return pages.connector(
        _base(request), row, batches, reports, trouble, signals=signals, notifications=notifications, works=works
    )


@app.get("/connectors/{connector}/batches/{batch}", response_class=HTMLResponse)
def batch(request: Request, user: GetUserDep, connector: str, batch: int) -> str:
    """One batch: what its manifest says."""
    with _store() as store:
        row = _found(store, connector, user)
        rows = store.batches(connector, batch=batch)
        before = store.batches(connector, batch=batch - 1)
    if not rows:
        raise HTTPException(404, f"Connector {connector} has no batch {batch}.")
    manifest, trouble = None, None
    try:
        access = access_of(row)
        manifest = None if access is None else access.changelog().manifest(connector, batch)
    except (CdcError, OSError) as e:
        trouble = str(e)
    return pages.batch(_base(request), rows[0], before[0] if before else None, manifest, trouble, last=row.batch)


@contextlib.contextmanager
def _store() -> Iterator[StateStore]:
    store = CdcStateHook().get_conn(patience_s=2)
    try:
        store.verify()
        yield store
    finally:
        store.close()


def _found(store: StateStore, connector: str, user: BaseUser) -> ConnectorRecord:
    """A connector that the user may see; for any other, the same error as if it did not exist."""
    found = store.connector(connector)
    if found is None or not may_see(user, found):
        raise HTTPException(404, f"No connector {connector!r} has run yet.")
    return found


def _base(request: Request) -> str:
    """The path of the pages, below Airflow's own base path."""
    return str(request.scope.get("root_path", "")).rstrip("/")


@app.exception_handler(CdcError)
def _trouble(request: Request, error: CdcError) -> Response:
    return HTMLResponse(pages.trouble(_base(request), str(error)), status_code=503)


@app.exception_handler(HTTPException)
async def _refused(request: Request, error: HTTPException) -> Response:
    """Redirect users who are not logged in to Airflow's login, and back."""
    if error.status_code == 401 and "text/html" in request.headers.get("accept", ""):
        outside = _base(request).removesuffix("/cdc")
        return RedirectResponse(f"{outside}/api/v2/auth/login?next={quote(str(request.url), safe='')}")
    if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(pages.trouble(_base(request), str(error.detail)), status_code=404)
    answer = await http_exception_handler(request, error)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code, headers=dict(answer.headers))
