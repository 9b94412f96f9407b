"""The stream's driver and its lanes: what runs a stream inside Spark."""
