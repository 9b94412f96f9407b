"""Reads the sink for a verification, in this process."""
