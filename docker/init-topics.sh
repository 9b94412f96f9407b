#!/bin/sh
# Makes the topics of dags/streams.py. Copies and in-sync minimum are the brokers' defaults.
set -eu

for topic in ip_count_source ip_count_sink copy_source copy_sink word_count_source word_count_sink; do
    /opt/kafka/bin/kafka-topics.sh --bootstrap-server "$1" --create --if-not-exists --topic "$topic" --partitions 3
done
