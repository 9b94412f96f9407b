"""A whole Airflow on this machine."""
