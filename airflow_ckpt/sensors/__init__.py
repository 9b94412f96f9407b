"""The sensor that waits for a stream's progress."""
