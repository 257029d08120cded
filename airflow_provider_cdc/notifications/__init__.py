"""Part of the Airflow face."""
