"""A form that works on connectors between runs.

It pauses, resumes, stops, restarts and deletes them, shows their state, moves their offsets and repairs gaps.

The connectors are those of the examples; write your own in their place.
"""

from __future__ import annotations

from inventory import inventory, inventory_oracle

from airflow_provider_cdc.dag import lifecycle_dag

dag = lifecycle_dag([inventory, inventory_oracle], dangerous=True)
