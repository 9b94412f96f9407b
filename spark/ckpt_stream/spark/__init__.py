"""What the driver and a verification both need of Spark: session, files, source, output, and the rules for single records."""
