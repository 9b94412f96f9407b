"""Looks at streams and acts on them: observation, submit, resume, stop, and starting again without Airflow. Knows no Airflow."""
