"""What is asked of Kafka and written to it: settings, topics, offsets, transactions, the ledger topic. Knows no Spark."""
