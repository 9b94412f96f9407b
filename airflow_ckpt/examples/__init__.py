"""What the example DAGs and the demo need: fill a topic, read one."""
