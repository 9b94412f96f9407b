"""Functions for the example DAGs and the demo: fill a topic, read a topic."""
