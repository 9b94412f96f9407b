"""The parts of a verification that run in Spark: the scan of a sink, and the recomputation from the source."""
