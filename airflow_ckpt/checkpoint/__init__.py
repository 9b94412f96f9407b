"""Reads Spark's checkpoint files. Pure: imports neither Airflow nor Kafka nor Spark."""
