"""The jars that the stack needs, downloaded once."""
