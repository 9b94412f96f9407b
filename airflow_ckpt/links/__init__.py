"""Links on a task's page."""
