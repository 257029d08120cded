"""The application below ``/cdc``: the API of the pages, their built files, and the metrics for Prometheus.

docs/run/security.md describes the rights. FastAPI evaluates annotations: everything they name is imported at module level.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_asset
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, NotGranted, StateError, TransientError
from airflow_provider_cdc.plugins import docs_pages
from airflow_provider_cdc.plugins.api import (
    action_routes,
    check_and_chart_routes,
    connector_read_routes,
    response_models,
    row_history_routes,
    wizard_routes,
)
from airflow_provider_cdc.plugins.api.body_limit import BodyLimit
from airflow_provider_cdc.plugins.api.dependencies import Store, right_of
from airflow_provider_cdc.plugins.authorization import filter_readable, known_of
from airflow_provider_cdc.services.connectors.bounded_calls import set_caller
from airflow_provider_cdc.services.dashboards.openmetrics_text import CONTENT_TYPE, format_openmetrics
from airflow_provider_cdc.services.dashboards.overview_models import LastError

STATIC = Path(__file__).parent / "static"
"""The pages, built by ``dev/setup``."""
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": response_models.ProblemAnswer, "description": description}
    for status, description in {
        401: "No user is logged in",
        403: "The user may not do this",
        404: "The connector does not exist, or the user may not see it",
        409: "The action is not possible",
        413: "The body is too large",
        415: "The body is not declared as JSON",
        503: "The state tables, the change log or the source cannot be reached",
    }.items()
}

app = FastAPI(
    title="Change data capture",
    version="1",
    description="Status of the connectors that capture changes, and actions on them. Airflow's login and permissions apply.",
    docs_url=None,  # its page would load scripts from elsewhere
    redoc_url=None,
    openapi_url="/api/v1/openapi.json",
)
app.add_middleware(BodyLimit)


def _json_only(request: Request) -> None:
    """Refuse bodies that a page of another site could send without its user's knowledge: forms, and bodies without a type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method not in ("GET", "HEAD") and kind != "application/json":
        raise HTTPException(415, "The body must be JSON, with the header “Content-Type: application/json”.")


async def _name_caller(user: GetUserDep) -> None:
    """Count the calls of the request to other systems for its user. An endpoint runs in the context that an asynchronous dependency leaves."""
    set_caller(user.get_name())


_signed_in = [Depends(requires_access_asset("GET")), Depends(_name_caller)]
_api = APIRouter(prefix="/api/v1", dependencies=[*_signed_in, Depends(_json_only)], responses=_PROBLEMS)
for router in (
    connector_read_routes.router,
    check_and_chart_routes.router,
    action_routes.router,
    row_history_routes.router,
    wizard_routes.router,
):
    _api.include_router(router)
for route in _api.routes:
    if isinstance(route, APIRoute):  # so that the document names the right of each route
        route.openapi_extra = {"x-right": right_of(route).value}
app.include_router(_api)


@app.get("/metrics", dependencies=_signed_in, include_in_schema=False)
def export_metrics(store: Store, user: GetUserDep) -> Response:
    """Return the metrics of all connectors that the user may see, as OpenMetrics text."""
    records = store.list_connectors()
    context = known_of(records)
    visible = {record.connector for record in filter_readable(user, records, context)}
    visible_series = [series for series in store.metrics.load_series() if series.connector in visible]
    return Response(format_openmetrics(visible_series), media_type=CONTENT_TYPE)


@app.get("/docs/{page:path}", include_in_schema=False)
def show_docs_page(page: str) -> Response:
    """Return a page or a picture of the documentation."""
    file = docs_pages.list_files().get(page)
    if file is None:
        raise HTTPException(404, "The documentation has no such page.")
    text = docs_pages.render_page(page)
    if text is None:
        return FileResponse(file, headers=docs_pages.HEADERS)
    return Response(text, headers=docs_pages.HEADERS, media_type="text/html")


class _BuiltFiles(StaticFiles):
    """Files that a browser asks for again each time, since an upgrade replaces them."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["cache-control"] = "no-cache"
        return answer


app.mount("/static", _BuiltFiles(directory=STATIC, check_dir=False), name="static")


@app.exception_handler(CdcError)
def _trouble(request: Request, error: CdcError) -> Response:
    status = 503 if isinstance(error, (TransientError, StateError)) else 403 if isinstance(error, NotGranted) else 409
    return _answer(
        status,
        response_models.ProblemAnswer(detail=str(error), error=LastError.from_text(describe_error(error))).model_dump(
            mode="json"
        ),
    )


@app.exception_handler(HTTPException)
def _refused(request: Request, error: HTTPException) -> Response:
    body = response_models.ProblemAnswer(detail=str(error.detail), error=None).model_dump(mode="json")
    return _answer(error.status_code, body, error.headers)


@app.exception_handler(RequestValidationError)
def _malformed(request: Request, error: RequestValidationError) -> Response:
    """FastAPI's own answer without the values that were sent: some of them (NaN, halves of characters) no JSON can have."""
    errors = [{"type": entry["type"], "loc": list(entry["loc"]), "msg": entry["msg"]} for entry in error.errors()]
    return _answer(422, {"detail": errors})


def _answer(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """In ASCII, which has a form for halves of characters, too."""
    return Response(json.dumps(body), status, headers, media_type="application/json")
