"""The rules of a verification: each takes what was read and yields findings."""
