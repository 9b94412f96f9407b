"""What Airflow and Spark share in a verification: the consistent cut through a running stream, and the result of a scan."""
