"""A form that pauses, resumes, stops and restarts connectors, shows how they stand, moves their offsets, repairs gaps and deletes
them.

The connectors are those of the examples; write your own in their place.
"""

from __future__ import annotations

from inventory import inventory, inventory_oracle

from airflow_provider_cdc.dag import lifecycle_dag

dag = lifecycle_dag([inventory, inventory_oracle])
