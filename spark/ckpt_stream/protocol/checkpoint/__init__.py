"""Spark's files of a checkpoint: their text, how far they go, and where each batch lies in the source."""
