"""The small files beside a checkpoint: run records, restart history, stop requests, notes."""
