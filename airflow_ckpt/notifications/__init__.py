"""Tells people that a stream failed, was resumed, or was given up."""
