"""The stream as Airflow sees it: its declaration, its status, when it may be restarted, and whether that is safe."""
