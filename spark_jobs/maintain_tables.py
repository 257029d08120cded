"""Maintain lakehouse tables: ``spark-submit maintain_tables.py --changelog … --connector … --location …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.targets.lake.jobs.maintain_tables`.
"""

import sys

from airflow_provider_cdc.targets.lake.jobs.maintain_tables import main

if __name__ == "__main__":
    sys.exit(main())
