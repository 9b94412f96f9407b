"""Buttons on a task's page."""
