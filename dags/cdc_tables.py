"""A form that compares the tables of connectors with their sources, repairs those that differ, and builds tables again; the pages of connectors start its runs.

The connectors are those of the examples; write your own in their place. It needs the connection ``spark_default``.
"""

from __future__ import annotations

from inventory import SPARK, inventory, inventory_oracle

from airflow_provider_cdc.dag import tables_dag

dag = tables_dag([inventory, inventory_oracle], dangerous=True, spark=SPARK)
