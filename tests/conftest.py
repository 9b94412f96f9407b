"""Where the fixtures live, one file per part of the stack or of what a test replaces."""

pytest_plugins = [
    "tests.fixtures.kafka",
    "tests.fixtures.spark",
    "tests.fixtures.airflow",
    "tests.fixtures.hadoop",
    "tests.fixtures.standalone",
    "tests.fixtures.empty_checkpoint",
    "tests.fixtures.pauses",
    "tests.fixtures.written_sink",
]
