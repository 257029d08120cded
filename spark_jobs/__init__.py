"""PySpark jobs: apply a change log to tables, verify tables. They know no Airflow, and nothing of where changes come from."""
