"""What is asked of the machine that the code runs on, and done to it: processes, the environment, local files."""
