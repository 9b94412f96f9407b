"""The operators. Each checks its arguments, calls the core, and publishes the result."""
