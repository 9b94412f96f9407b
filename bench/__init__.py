"""Measured claims, each with its command: `make bench`."""
