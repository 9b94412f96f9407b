"""Formats and rules that Spark and Airflow agree on. Pure: neither Spark nor a Kafka client, and storage only as it is given."""
