"""What a verification runs in Spark: the scan of a sink, and the recomputation from the source."""
