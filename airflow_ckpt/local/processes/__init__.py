"""Starts, finds and ends processes of this machine, and finds Java for them."""
