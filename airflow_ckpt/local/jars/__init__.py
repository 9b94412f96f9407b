"""The jars that the stack needs, downloaded once, and what makes a JVM start faster with them."""
