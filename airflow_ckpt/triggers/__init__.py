"""The trigger, which the triggerer runs while a task is deferred."""
