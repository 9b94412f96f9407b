"""Notifiers, and the events of a stream that they get."""
