"""Airflow's connections and configuration, turned into what the core needs."""
