"""What we ask Kafka: ends, last stable offsets, retention, consumer-group offsets. Imports neither Airflow nor Spark."""
