"""Processes of this machine: started, found again, ended; and the Java that they run on."""
