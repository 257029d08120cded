"""DAG runs that pages begin, with the rights of who asks."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy.orm import Session

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.airflow_compat import AirflowException, build_manual_condition
from airflow_provider_cdc.plugins.authorization import known_dags
from airflow_provider_cdc.services.actions.action_history import Run
from airflow_provider_cdc.services.actions.action_models import Fate

TAG = "cdc"
"""Tag of DAGs whose forms are read, if only people start them."""
_FATES: dict[str, Fate] = {
    DagRunState.QUEUED: "queued", DagRunState.RUNNING: "running", DagRunState.SUCCESS: "done", DagRunState.FAILED: "failed",
}  # fmt: skip
_SAFE = "Nothing was changed."
_FORMS: dict[str, tuple[str, dict[str, Any]]] = {}
"""Forms by the ids of their DAGs, each with the hash of the DAG that it is from."""
_FORMS_LOCK = threading.Lock()


class AirflowDagRuns:
    """Implements :class:`airflow_provider_cdc.services.actions.connector_run_actions.DagRuns` and :class:`airflow_provider_cdc.services.actions.action_history.RunOutcomes`.

    :param user: who asks
    """

    def __init__(self, user: BaseUser) -> None:
        self._user = user

    def find_form_dag(
        self, choices: Mapping[str, str], parameters: Collection[str], factory: str, *, dangerous: bool = False
    ) -> str:
        connector = choices["connector"]
        fitting = [
            id_
            for id_, taken in list_form_dags().items()
            if set(parameters) <= taken.keys() and all(value in taken[name] for name, value in choices.items())
        ]
        for dag in fitting:
            if self._may_begin(dag):
                return dag
        readable = self._filter_readable(fitting)  # a user does not learn the names of other DAGs
        which = f"you may not start a run of {', '.join(readable) or 'it'}" if fitting else "no such DAG exists"
        made = f"{factory}([…], dangerous=True)" if dangerous else f"{factory}([…])"
        raise CdcError(
            f"The action needs a run of a DAG from {factory} that offers {connector}: {which}.",
            safe=_SAFE,
            remedy=f"add dag = {made} with this connector to a file in the DAG folder; dags/ has examples"
            if not fitting else "ask for the right to trigger it",
        )  # fmt: skip

    def find_obstacle(self, dag: str) -> str | None:
        known_dag = known_dags([dag]).get(dag)
        if known_dag is None or known_dag.stale:
            return f"Airflow does not have the DAG {dag} (any more): check its file."
        if known_dag.paused:
            return f"The DAG {dag} is paused in Airflow, and its runs wait: unpause it first."
        return None if self._may_begin(dag) else f"You may not start a run of {dag}: ask for the right to trigger it."

    def start_run(self, dag: str, run: str, conf: Mapping[str, Any]) -> None:
        try:
            trigger_dag(
                dag, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=self._user.get_name(), run_id=run, conf=dict(conf)
            )  # fmt: skip
        except (AirflowException, ValueError) as e:
            raise CdcError(
                f"Airflow cannot start a run of {dag}: {e}", safe=_SAFE, remedy=f"check the DAG {dag}"
            ) from e

    def find_outcomes(self, runs: Collection[Run]) -> dict[Run, tuple[Fate, datetime | None]]:
        if not runs:
            return {}
        readable = set(self._filter_readable({dag for dag, _ in runs}))
        columns = sa.select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.end_date)
        with create_session() as session:
            rows = session.execute(columns.where(DagRun.run_id.in_({run for _, run in runs}))).all()
        return {
            (dag, run): (_FATES.get(state, "not known"), end)
            for dag, run, state, end in rows
            if dag in readable and (dag, run) in runs
        }

    def _filter_readable(self, dags: Collection[str]) -> list[str]:
        """Return the DAGs that the user may read."""
        known, ask = known_dags(dags), get_auth_manager().is_authorized_dag
        return [
            dag.id
            for dag in known.values()
            if ask(method="GET", details=DagDetails(id=dag.id, team_name=dag.team), user=self._user)
        ]

    def _may_begin(self, dag: str) -> bool:
        known_dag = known_dags([dag]).get(dag)
        details = DagDetails(id=dag, team_name=None if known_dag is None else known_dag.team)
        ask = get_auth_manager().is_authorized_dag
        return bool(ask(method="POST", access_entity=DagAccessEntity.RUN, details=details, user=self._user))


def list_form_dags() -> dict[str, dict[str, Any]]:
    """Return the DAGs with a form about connectors: id → parameter → its values, empty if it has no list of them."""
    columns = sa.select(DagModel.dag_id).join(DagTag, DagTag.dag_id == DagModel.dag_id).order_by(DagModel.dag_id)
    serialized = sa.select(SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
    with create_session() as session:
        ids = session.scalars(columns.where(DagTag.name == TAG, ~DagModel.is_stale, build_manual_condition())).all()
        rows = session.execute(
            serialized.where(SerializedDagModel.dag_id.in_(ids)).order_by(SerializedDagModel.created_at)
        )
        hashes: dict[str, str] = {id_: hash_ for id_, hash_ in rows}  # noqa: C416  # the newest one remains
        bag = DBDagBag()
        forms = {id_: _form_of(bag, id_, hashes[id_], session) for id_ in ids if id_ in hashes}
    with _FORMS_LOCK:
        for id_ in _FORMS.keys() - forms.keys():
            del _FORMS[id_]
    return {id_: taken for id_, taken in forms.items() if "connector" in taken}


def _form_of(bag: DBDagBag, dag: str, hash_: str, session: Session) -> dict[str, Any]:
    """Return the parameters of a DAG. Airflow's text of it is read once: a request is not to read the DAGs of a whole installation."""
    with _FORMS_LOCK:
        known_hash, form = _FORMS.get(dag, ("", {}))
    if known_hash != hash_:
        found = bag.get_latest_version_of_dag(dag, session=session)
        form = {} if found is None else _parameters(dict(found.params.items()))  # type: ignore[no-untyped-call]
        with _FORMS_LOCK:
            _FORMS[dag] = (hash_, form)
    return form


def _parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list((getattr(param, "schema", None) or {}).get("enum") or ()) for name, param in params.items()}
