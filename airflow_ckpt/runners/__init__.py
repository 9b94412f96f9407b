"""Starts, observes and ends a stream's driver: as a process of this machine, on YARN, or on Kubernetes."""
