"""Translates Airflow's connections and configuration for the core."""
