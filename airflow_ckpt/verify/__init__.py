"""Verification: reads ledger, sink and checkpoint, and reaches a verdict. Imports neither Airflow nor Spark."""
