"""Airflow provider for exactly-once PySpark streams from Kafka to Kafka."""

__version__ = "0.1.0"
