"""Start, look at and stop a stream's driver: as a process of this machine, on YARN, or on Kubernetes."""
