"""What a triggerer runs while a task is deferred."""
