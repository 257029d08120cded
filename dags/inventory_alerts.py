"""Check every five minutes whether a connector needs attention.

Its last run has failed, it is too far behind its source, or it has been silent for too long; and the same for the apply of its changes. The task fails
then, with a sentence for each: whatever Airflow does when a task fails
(``on_failure_callback`` with a notifier for mail, Slack or a pager) tells people.

It looks at all connectors whose state is in the connection ``cdc_state_default``, whichever DAG captures them, and asks no source.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, task

with DAG(
    "inventory_alerts",
    schedule="*/5 * * * *",
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["cdc"],
) as dag:

    @task
    def look() -> None:
        """Fail if there is something to look at."""
        from airflow.sdk.exceptions import AirflowException

        from airflow_provider_cdc.hooks.state import CdcStateHook
        from airflow_provider_cdc.services.dashboards.connector_alerts import AlertLimits, format_alerts

        with CdcStateHook().open_store() as store:
            found = format_alerts(
                store.list_connectors(), store.metrics.load_series(), AlertLimits(behind_s=600, silent_s=3600)
            )
        if found:
            raise AirflowException("\n".join(found))

    look()
