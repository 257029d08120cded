"""Pages about connectors in Airflow's UI."""
