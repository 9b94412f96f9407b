"""Observes streams and acts on them: status, submit, resume, stop, and a start without Airflow. Imports no Airflow."""
