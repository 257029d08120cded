"""Check every five minutes whether a connector needs attention.

It looks at all connectors whose state is in the connection ``cdc_state_default``, whichever DAG captures them, and asks no source. Give it
notifiers for mail, Slack or a pager: ``notify=[…]``.
"""

from __future__ import annotations

from airflow_provider_cdc.dag import alerts_dag

dag = alerts_dag(dag_id="inventory_alerts")
