"""How an application is given its configuration as JSON, and Kafka's secrets apart from it.

The document comes as the first argument, as a file (``@path``), or in the environment variable ``CKPT_STREAM``. Secrets come
as the Spark property ``spark.ckpt.kafka.secrets`` (in a properties file) or in the environment variable
``CKPT_KAFKA_SECRETS``, each a JSON object of librdkafka settings. `machine/application_input.py` reads them.
"""

from __future__ import annotations

ENVIRONMENT = "CKPT_STREAM"
SECRETS_ENVIRONMENT = "CKPT_KAFKA_SECRETS"
#: The path of the properties file with the secrets, if the submitter has written one that only this driver uses.
SECRETS_FILE_ENVIRONMENT = "CKPT_SECRETS_FILE"
#: "secret" in the name makes Spark redact it in its UI and logs.
SECRETS_PROPERTY = "spark.ckpt.kafka.secrets"
