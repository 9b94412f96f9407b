"""Which settings are secrets, by their names and in their values."""

from __future__ import annotations

import pytest

from ckpt_stream.protocol.settings.secret_names import is_secret, secret_in

pytestmark = pytest.mark.unit

SECRETS = (
    # Kafka, librdkafka and Java
    "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "ssl.key.pem", "ssl.keystore.key",
    "kafka.ssl.keystore.key", "sasl.jaas.config", "kafka.sasl.jaas.config", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.token",
    "SASL.PASSWORD", "spark.kafka.clusters.prod.ssl.keystore.password", "schema.registry.basic.auth.user.info",
    "bearer.auth.token", "bearer_token", "BEARER",
    # of anything
    "apikey", "api_key", "api-key", "apiKey", "X-API-Key", "API_KEYS", "credential", "credentials", "db.credentials", "DB_PASSWD",
    "passwd", "passphrase", "dbPassword", "db.pwd", "privateKey", "private_key", "clientSecret", "client_secret", "secret",
    "accessToken", "access_token", "refresh.token", "token", "webhook.token", "GITHUB_TOKEN", "spark.ssl.keyPassword",
    "spark.authenticate.secret", "jaasConfig",
    # storage
    "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "aws_session_token", "fs.s3a.encryption.key", "sas", "sas_token", "sasToken", "SASToken", "sastoken",
    "AZURE_STORAGE_SAS_TOKEN",
    "fs.azure.sas.box.acct.blob.core.windows.net", "fs.azure.sas.fixed.token.acct.dfs.core.windows.net",
    "fs.azure.account.key.acct.dfs.core.windows.net", "spark.hadoop.fs.azure.account.key.acct.blob.core.windows.net",
    "fs.azure.account.oauth2.client.secret", "accountkey", "accountKey", "account_key", "AccountKey", "AZURE_STORAGE_KEY",
    "SharedAccessKey", "SharedAccessSignature", "shared_access_signature", "sharedaccesskey", "shared.access.key",
    "connection_string", "connectionString", "AZURE_STORAGE_CONNECTION_STRING", "connectionstring",
    "fs.gs.auth.service.account.private.key", "fs.gs.auth.client.secret",
    # of web services and databases
    "authorization", "Authorization", "http.headers.Authorization", "PROXY_AUTHORIZATION", "cookie", "Set-Cookie",
    "session_cookies", "jwt", "ID_JWT", "pat", "GITHUB_PAT", "azurePat", "pass", "db_pass", "smtp.pass", "DB_PASS",
    "dbPass", "pwd", "userPwd", "passcode", "tokens", "access_tokens", "accessTokens", "refresh.tokens", "signing_key",
    "jwtSigningKey", "hmac_key", "master_key", "MASTER_KEY", "ssh_key", "app_key", "appKey", "DD_APP_KEY", "sig", "signature",
    "request.signature", "basic.auth", "basicAuth", "client_assertion", "clientAssertion", "sasl.oauthbearer.client.assertion",
)  # fmt: skip

ORDINARY = (
    # Kafka, librdkafka and Java
    "bootstrap.servers", "key.serializer", "value.deserializer", "security.protocol", "sasl.mechanism", "sasl.mechanisms",
    "sasl.username", "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd", "sasl.kerberos.service.name", "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url", "ssl.key.location",
    "ssl.ca.pem", "ssl.ca.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl.keystore.type",
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates", "ssl.keystore.certificate.chain",
    "ssl.endpoint.identification.algorithm", "max.partition.fetch.bytes", "kafka.max.poll.records", "partitioner",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.assertion.private.key.file", "basic.auth.credentials.source", "bearer.auth.credentials.source",
    "bearer.auth.logical.cluster",
    # Spark and Hadoop
    "spark.sql.shuffle.partitions", "spark.kafka.clusters.prod.sasl.token.mechanism", "spark.executor.memory",
    "spark.security.credentials.kafka.enabled", "spark.security.credentials.renewalRatio", "spark.authenticate",
    "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile", "spark.hadoop.fs.s3a.endpoint", "spark.ui.enabled",
    "fs.s3a.aws.credentials.provider", "fs.s3a.path.style.access", "fs.azure.account.auth.type.acct.dfs.core.windows.net",
    "fs.azure.account.oauth.provider.type", "fs.azure.account.oauth2.client.id", "fs.azure.account.oauth2.client.endpoint",
    "fs.azure.sas.token.provider.type.acct.dfs.core.windows.net", "fs.azure.account.keyprovider.acct",
    "fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile",
    # of anything
    "GOOGLE_APPLICATION_CREDENTIALS", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION", "PWD", "PATH",
    "account_name", "tenant_id", "client_kwargs", "endpoint_url", "tokenizer", "max_tokens", "token.bucket.size", "key", "keys",
    "key_field", "primary.key", "partition_key", "session", "sasl", "saskatoon", "password_file", "passenger", "compass",
    "monkey", "keyboard", "api.version.request", "access.log", "topic", "threshold", "user", "info",
    # words with a secret's name in them
    "compat", "compatibility", "pattern", "path", "OLDPWD", "pass_through", "passthrough", "bypass", "single_pass", "pass.count",
    "num_tokens", "max_new_tokens", "tokens_per_second", "verify_signature", "signature_algorithm", "significant", "design",
    "map_key", "wrap.key", "application_keyboard", "signing_algorithm", "jwt_issuer", "jwt.algorithm", "authorization_url",
    "cookie.domain", "basic_auth_type", "author", "authorizer.class.name", "master", "spark.master", "ssh", "jwks.url",
    # Kafka's, librdkafka's, Spark's and Hadoop's own
    "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class", "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.file",
    "hadoop.security.authorization", "spark.hadoop.hadoop.security.authorization", "hive.security.authorization.manager",
    "hadoop.http.authentication.cookie.domain", "hadoop.http.authentication.cookie.path", "fs.s3a.signing-algorithm",
    "parquet.encryption.footer.key", "spark.sql.parquet.enableVectorizedReader", "spark.sql.legacy.pathOptionBehavior.enabled",
    "spark.sql.streaming.stateStore.compression.codec", "master.key.id", "fs.azure.authorization",
    "fs.azure.authorization.caching.enable", "hive.metastore.authorization.storage.checks",
    "security.service.authorization.default.acl",
    "hive.server2.thrift.http.cookie.max.age", "yarn.resourcemanager.nm-tokens.master-key-rolling-interval-secs",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_what_is_no_secret_may_be_shown(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("s3a://KEY:SECRET@bucket/x", "a password in a URL"),
        ("s3a://KEY:SEC/RET+1@bucket/x", "a password in a URL"),
        ("http://user:pw@nn:9870", "a password in a URL"),
        ("jdbc:postgresql://u:pw@db:5432/x", "a password in a URL"),
        ("redis://:pw@cache", "a password in a URL"),
        ("jdbc:sqlserver://db;user=u;password=pw", "password=..."),
        ("https://acct.blob.core.windows.net/x?sv=1&sig=abc%3D", "sig=..."),
        ("-Xmx1g -Djavax.net.ssl.trustStorePassword=pw", "Djavax.net.ssl.trustStorePassword=..."),
        ('module required username="u" password="pw";', "password=..."),
        ("DefaultEndpointsProtocol=https;AccountKey=abc==", "AccountKey=..."),
    ],
)
def test_a_secret_in_a_value_is_named_and_not_shown(value: str, told: str) -> None:
    assert secret_in(value) == told


@pytest.mark.parametrize(
    "value",
    [
        "s3a://bucket/x", "http://namenode:9870", "http://namenode:9870/webhdfs/user@realm", "abfss://box@acct.dfs.core.windows.net/x",
        "spark://master:7077", "jdbc:mysql://db:3306?email=a@b", "broker-1:9092,broker-2:9092", "a@b:c", "gs://user@bucket/a:b",
        "-Dlog4j.configuration=file:/x -Xmx1g", "-Djavax.net.ssl.trustStorePassword=${env:PW}", "key=value", "password=",
        "-Djavax.net.ssl.keyStore=/x -Dspark.ssl.password_file=/y", "{{ token == 'x' }}", "hdfs://nn1:8020,hdfs://user@nn2:8020",
    ],
)  # fmt: skip
def test_what_in_a_value_is_no_secret_may_be_shown(value: str) -> None:
    assert secret_in(value) is None
