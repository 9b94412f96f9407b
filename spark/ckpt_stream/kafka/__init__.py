"""All requests to Kafka: settings, topics, offsets, transactions, the ledger topic. Imports no Spark."""
