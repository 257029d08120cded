"""Apply a change log to lakehouse tables: ``spark-submit apply_changes.py --changelog … --connector … --location …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.targets.lake.jobs.apply_changes`.
"""

import sys

from airflow_provider_cdc.targets.lake.jobs.apply_changes import main

if __name__ == "__main__":
    sys.exit(main())
