"""Read the tables of a snapshot: ``spark-submit read_tables.py --changelog … --connector … --source … --snapshot … --readers …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.snapshot_readers.spark_job`.
"""

import sys

from airflow_provider_cdc.snapshot_readers.spark_job import main

if __name__ == "__main__":
    sys.exit(main())
