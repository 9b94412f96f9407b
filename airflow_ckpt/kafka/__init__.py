"""Requests to Kafka that only Airflow makes: lag and consumer-group offsets, with shared clients. Imports no Airflow or Spark."""
