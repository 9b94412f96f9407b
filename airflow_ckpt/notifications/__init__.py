"""The events of a stream, and the notifiers that get them."""
