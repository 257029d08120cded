"""Verify lakehouse tables against the source: ``spark-submit verify_tables.py --changelog … --connector … --location …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.targets.lake.jobs.verify_tables`.
"""

import sys

from airflow_provider_cdc.targets.lake.jobs.verify_tables import main

if __name__ == "__main__":
    sys.exit(main())
