"""The laptop-size stack: processes, jars, a real Kafka and Airflow, for the demo and for every integration test."""
