"""The stream in Airflow: its declaration, its status, its restart strategy, and the findings that prevent a start. Pure."""
