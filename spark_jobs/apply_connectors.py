"""Apply the change logs of several connectors in one Spark session: ``spark-submit apply_connectors.py --apply … --apply …``.

``--help`` lists the arguments. The job itself is :mod:`airflow_provider_cdc.targets.lake.jobs.apply_connectors`.
"""

import sys

from airflow_provider_cdc.targets.lake.jobs.apply_connectors import main

if __name__ == "__main__":
    sys.exit(main())
