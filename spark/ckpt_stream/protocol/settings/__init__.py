"""The settings of a stream: each is declared here once, and checked."""
