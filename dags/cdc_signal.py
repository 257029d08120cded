"""A form that sends any signal to a connector, and waits for what becomes of it.

The connectors are those of the examples; write your own in their place.
"""

from __future__ import annotations

from inventory import inventory, inventory_oracle

from airflow_provider_cdc.dag import signal_dag

dag = signal_dag([inventory, inventory_oracle])
