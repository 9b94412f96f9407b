"""What both sides of a verification agree on: the cut through a stream that may be running, and what a scan found."""
