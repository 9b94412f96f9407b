"""The demo: a stream that is killed twice in the middle of its work, resumed by Airflow, and counted afterwards."""
