"""The demo: a stream whose driver is killed twice, which Airflow resumes, and whose sink is counted afterwards."""
