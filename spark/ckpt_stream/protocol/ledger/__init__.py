"""The ledger: its records, what a lane does with a batch, and how a start compares it with the checkpoint."""
