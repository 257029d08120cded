"""A DAG for each connector that a file in ``inventory_fleet/`` defines, in YAML or JSON; ``_defaults.yaml`` there holds for all of them.

To add a connector, add a file: Airflow has its DAG half a minute later. If a file cannot be used, the DAG of that one fails, and says why.

What they need are the connections that the files name, ``spark_default`` and ``cdc_state_default``, and the Airflow variables ``cdc_changelog`` and
``cdc_lake`` where the paths in ``_defaults.yaml`` do not fit. ``default_args`` is the place for what only code can say, such as callbacks.
"""

from __future__ import annotations

from pathlib import Path

from airflow_provider_cdc.dag import cdc_dags

fleet = cdc_dags(Path(__file__).parent / "inventory_fleet", default_args={"owner": "data"})
