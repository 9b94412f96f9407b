"""The rules of a verification: each compares data that was read, and yields findings."""
