"""Rebuild tables from the change log: ``spark-submit rebuild_tables.py --changelog … --connector … --location … --topic …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.targets.lake.jobs.rebuild_tables`.
"""

import sys

from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import main

if __name__ == "__main__":
    sys.exit(main())
