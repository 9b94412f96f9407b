"""What only Airflow asks Kafka: lag, consumer-group offsets, with shared clients. Imports neither Airflow nor Spark."""
