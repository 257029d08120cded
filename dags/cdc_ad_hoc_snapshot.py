"""A form that has tables read again while their changes are captured: which tables, which rows, and how.

The connectors are those of the examples; write your own in their place. It needs ``airflow cdc setup``, once, and that each
connector has run before; the connector's own DAG does the reading.
"""

from __future__ import annotations

from inventory import inventory, inventory_oracle

from airflow_provider_cdc.dag import ad_hoc_snapshot_dag

dag = ad_hoc_snapshot_dag([inventory, inventory_oracle])
