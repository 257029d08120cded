"""Apply a change log to tables of a relational database: ``spark-submit apply_to_database.py --changelog … --connector …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.targets.lake.jobs.apply_to_database`.
"""

import sys

from airflow_provider_cdc.targets.lake.jobs.apply_to_database import main

if __name__ == "__main__":
    sys.exit(main())
