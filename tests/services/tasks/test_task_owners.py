"""The owner of a lease names the try of a task, and leads back to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.services.tasks.connector_fields import owner_of, parse_owner, task_run_of

KEYS = st.from_regex(r"[\w.-]{1,40}", fullmatch=True)
"""Ids of DAGs and tasks, as Airflow accepts them."""


@given(
    KEYS,
    KEYS,
    st.text(min_size=1, max_size=100).filter(lambda text: "\n" not in text),
    st.integers(-1, 9),
    st.integers(1, 99),
)
def test_the_owner_of_a_lease_leads_to_its_try(dag_id: str, task_id: str, run_id: str, index: int, number: int) -> None:
    ti = SimpleNamespace(dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=index, try_number=number)
    context: Any = {"ti": ti}
    assert parse_owner(owner_of(context), dag_id) == task_run_of(context)


def test_another_owner_leads_nowhere() -> None:
    assert parse_owner("worker 7", "cdc_shop") is None
    assert parse_owner("cdc_shopping.capture manual__1 try 1 on worker-1:4711", "cdc_shop") is None
