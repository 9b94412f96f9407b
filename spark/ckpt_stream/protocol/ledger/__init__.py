"""The ledger: its records, the decision of a lane on a batch, and the comparison with the checkpoint at a start."""
