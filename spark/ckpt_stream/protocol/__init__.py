"""Formats and rules that Spark and Airflow agree on. Neither Spark nor a Kafka client, and storage only as it is given.

Nothing here touches a process, the environment or a file of its machine: that is in `ckpt_stream.machine`. What reads and writes
the files beside a checkpoint may wait for another writer, and reads the clock.
"""
