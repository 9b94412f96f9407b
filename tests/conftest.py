"""Where the fixtures live, one file per part of the stack."""

pytest_plugins = [
    "tests.fixtures.kafka",
    "tests.fixtures.spark",
    "tests.fixtures.airflow",
    "tests.fixtures.hadoop",
    "tests.fixtures.standalone",
]
