"""A real Kafka on this machine, of one broker or three."""
