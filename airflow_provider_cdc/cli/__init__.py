"""The commands ``airflow cdc``."""
