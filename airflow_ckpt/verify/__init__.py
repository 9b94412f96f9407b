"""Verification: reads ledger, sink and checkpoint, and gives a verdict. Imports neither Airflow nor Spark."""
