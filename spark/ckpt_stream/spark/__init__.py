"""The parts of Spark that driver and verification share: session, files, source, output, and rules for single records."""
