"""Reads and writes the files of a checkpoint through fsspec. Imports neither Airflow nor Kafka nor Spark."""
