"""One set of librdkafka settings for two clients: each protocol and mechanism, property by property."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ckpt_stream.errors import ConfigError
from ckpt_stream.security import (
    CLIENT_ONLY,
    HANDLED,
    MECHANISMS,
    PROTOCOLS,
    SHARED,
    client_settings,
    is_secret,
    java_settings,
    secret_in,
)

pytestmark = pytest.mark.unit

SERVERS = {"bootstrap.servers": "broker:9093"}
CA = "-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n"
CHAIN = CA + "-----BEGIN CERTIFICATE-----\nSU5URVI=\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nS0VZ\n-----END PRIVATE KEY-----\n"
KEYTAB = {"sasl.kerberos.keytab": "/etc/app.keytab", "sasl.kerberos.principal": "app@EXAMPLE.ORG"}
OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "app",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
}


def java(protocol: str, **settings: Any) -> dict[str, str]:
    """The Java settings without the two that every case has."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    mapped = java_settings({**SERVERS, "security.protocol": protocol, **named})
    assert mapped.pop("bootstrap.servers") == "broker:9093"
    assert mapped.pop("security.protocol") == protocol.upper()
    return mapped


def sasl(**settings: Any) -> dict[str, str]:
    return java("SASL_PLAINTEXT", **{name.replace(".", "__"): value for name, value in settings.items()})


def test_without_a_protocol_it_is_plaintext() -> None:
    assert java_settings(SERVERS) == {**SERVERS, "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("written", [str.upper, str.lower])
def test_a_protocol_may_be_written_in_small_letters_as_librdkafka_allows(protocol: str, written: Any) -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    mapped = java_settings({**SERVERS, **settings, "security.protocol": written(protocol)})
    assert mapped["security.protocol"] == protocol
    assert ("sasl.jaas.config" in mapped) == protocol.startswith("SASL")


def test_settings_of_a_protocol_that_is_not_used_are_left_out() -> None:
    assert java("PLAINTEXT", ssl__ca__location="/nowhere", sasl__password="hunter2", sasl__mechanism="PLAIN") == {}


# TLS


def test_the_certificates_of_the_broker_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(CA)
    assert java("SSL", ssl__ca__location=str(file)) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA,
    }


def test_the_certificates_of_the_broker_come_as_text_which_wins_over_a_file() -> None:
    mapped = java("SSL", ssl__ca__pem=CA, ssl__ca__location="/nowhere")
    assert mapped == {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA}


def certificates_in(pem: str) -> list[str]:
    """What Kafka's Java client finds in a text, by the pattern of its DefaultSslEngineFactory."""
    end_of = r"-+%s\s*.*CERTIFICATE[^-]*-+\s+"
    pattern = end_of % "BEGIN" + r"(?:\s*[^\r\n]*:[^\r\n]*[\r\n]+)*([a-zA-Z0-9/+=\s]*)" + end_of % "END"
    return [re.sub(r"\s", "", found) for found in re.findall(pattern, pem + "\n")]


def test_every_certificate_of_a_bundle_reaches_the_java_client() -> None:
    assert certificates_in(java("SSL", ssl__ca__pem=CHAIN)["ssl.truststore.certificates"]) == ["Q0E=", "SU5URVI="]
    mapped = java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=KEY)
    assert certificates_in(mapped["ssl.keystore.certificate.chain"]) == ["Q0E=", "SU5URVI="]
    # The pattern can tell: in one line, as one might put it into a properties file, only the last is found.
    assert certificates_in(CHAIN.replace("\n", " ")) == ["SU5URVI="]


def test_a_client_certificate_comes_from_files_or_as_text(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text(CHAIN)
    key.write_text(KEY)
    expected = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": CHAIN, "ssl.keystore.key": KEY}
    assert java("SSL", ssl__certificate__location=str(certificate), ssl__key__location=str(key)) == expected
    assert java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=KEY) == expected


def test_the_password_of_an_encrypted_key_is_passed_on() -> None:
    encrypted = KEY.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
    mapped = java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=encrypted, ssl__key__password="hunter2")
    assert mapped["ssl.key.password"] == "hunter2"
    assert mapped["ssl.keystore.key"] == encrypted


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "EC PRIVATE KEY"])
def test_a_key_that_java_cannot_read_is_refused_with_the_command_that_converts_it(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}.*openssl pkcs8 -topk8"):
        java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=KEY.replace("PRIVATE KEY", kind))


def test_a_keystore_of_librdkafka_is_pkcs12() -> None:
    assert java("SSL", ssl__keystore__location="/etc/app.p12", ssl__keystore__password="hunter2") == {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/etc/app.p12",
        "ssl.keystore.password": "hunter2",
    }


def test_a_keystore_without_a_password_has_none_in_java() -> None:
    mapped = java("SSL", ssl__keystore__location="/etc/app.p12")
    assert mapped == {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/etc/app.p12"}


def test_the_systems_own_certificates_are_those_of_the_java_runtime() -> None:
    assert java("SSL") == {}
    assert java("SSL", ssl__ca__location="probe") == {}


@pytest.mark.parametrize(("given", "mapped"), [("none", ""), ("https", "https")])
def test_host_name_verification_can_be_switched_off_in_both(given: str, mapped: str) -> None:
    settings = java("SSL", ssl__endpoint__identification__algorithm=given)
    assert settings == {"ssl.endpoint.identification.algorithm": mapped}


@pytest.mark.parametrize("value", ["false", "False", False])
def test_verification_switched_off_cannot_be_mapped(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"enable\.ssl\.certificate\.verification=false.*ssl\.ca\.location"):
        java("SSL", enable__ssl__certificate__verification=value)
    assert java("SSL", enable__ssl__certificate__verification="true") == {}


@pytest.mark.parametrize("half", [{"ssl__certificate__pem": CHAIN}, {"ssl__key__pem": KEY}])
def test_half_a_client_certificate_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"both ssl\.certificate\.\* and ssl\.key\.\*"):
        java("SSL", **half)


@pytest.mark.parametrize("name", ["ssl.ca", "ssl.certificate", "ssl.key"])
def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path, name: str) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(ConfigError, match=re.escape(f"{name}.location={str(path)!r}")):
            java("SSL", **{f"{name}.location": str(path)})


def test_files_are_read_by_whoever_knows_where_they_are() -> None:
    settings = {**SERVERS, "security.protocol": "SSL", "ssl.ca.location": "/far/away"}
    mapped = java_settings(settings, read_file=lambda path: f"read {path}")
    assert mapped["ssl.truststore.certificates"] == "read /far/away"


# SASL


def test_plain() -> None:
    assert sasl(**{"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": "hunter2"}) == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="hunter2";'
        ),
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "scram-sha-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_scram_under_either_of_librdkafkas_names(mechanism: str, name: str) -> None:
    assert sasl(**{name: mechanism, "sasl.username": "app", "sasl.password": "hunter2"}) == {
        "sasl.mechanism": mechanism.upper(),
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="app" password="hunter2";'
        ),
    }


def read_back(quoted: str) -> str:
    """A quoted text as Java's StreamTokenizer, which reads JAAS lines, understands it."""
    assert "\n" not in quoted
    assert "\r" not in quoted
    escapes = {"n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: escapes.get(found.group(1), found.group(1)), quoted)


@pytest.mark.parametrize("password", ['a"b', "a\\b", '\\"', "a;b", 'x" admin="true', "end\\", "a\nb", "a\r\n", "pä ß'"])
def test_a_password_with_any_characters_reaches_java_as_it_is_and_ends_nothing(password: str) -> None:
    line = sasl(**{"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": password})["sasl.jaas.config"]
    found = re.fullmatch(r'\S+ required username="app" password="((?:[^"\\]|\\.)*)";', line)
    assert found is not None, line
    assert read_back(found.group(1)) == password


def test_oauth_with_client_credentials() -> None:
    extra = {"sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "logicalCluster=a, identityPoolId=b=c"}
    assert sasl(**OIDC, **extra) == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
        # This class is in Kafka 3.9 and in 4.x; the one in the package `secured` is not.
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="app" clientSecret="hunter2" scope="kafka" '
            'extension_logicalCluster="a" extension_identityPoolId="b=c";'
        ),
    }


def test_oauth_without_scope_and_extensions_names_neither() -> None:
    assert sasl(**OIDC)["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="app" clientSecret="hunter2";'
    )


@pytest.mark.parametrize("method", [None, "default"])
def test_oauth_without_client_credentials_is_refused(method: str | None) -> None:
    settings = {**OIDC, "sasl.oauthbearer.method": method} if method else {"sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.method=oidc"):
        sasl(**settings)


def test_kerberos_with_a_keytab() -> None:
    assert sasl(**{"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "broker"}, **KEYTAB) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            'keyTab="/etc/app.keytab" principal="app@EXAMPLE.ORG";'
        ),
    }


def test_without_a_mechanism_it_is_kerberos_as_in_librdkafka() -> None:
    mapped = sasl(**KEYTAB)
    assert (mapped["sasl.mechanism"], mapped["sasl.kerberos.service.name"]) == ("GSSAPI", "kafka")


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.username and sasl.password"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u"}, "SCRAM-SHA-256 needs sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "", "sasl.password": "p"}, "PLAIN needs sasl.username"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI needs sasl.kerberos.keytab and sasl.kerberos.principal"),
        ({**OIDC, "sasl.oauthbearer.client.secret": ""}, "OAUTHBEARER needs sasl.oauthbearer.client.secret"),
    ],
)
def test_what_a_mechanism_needs_is_named(settings: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(missing)):
        sasl(**settings)


# What cannot be mapped


@pytest.mark.parametrize(
    "name", ["ssl.crl.location", "ssl.cipher.suites", "fetch.wait.max.ms", "made.up", "socket.timeout"]
)
def test_a_setting_without_counterpart_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(name))) as refusal:
        java_settings({**SERVERS, name: "hunter2"})
    assert "source_options" in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol='TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "DIGEST"},
            f"sasl.mechanism='DIGEST' is none of {', '.join(MECHANISMS)}",
        ),
    ],
)
def test_an_unknown_protocol_or_mechanism_is_refused_with_the_known_ones(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        java_settings({**SERVERS, **settings})


@pytest.mark.parametrize("name", sorted(SHARED - {"bootstrap.servers", "security.protocol"}))
def test_a_setting_of_both_clients_keeps_its_name_and_value(name: str) -> None:
    assert java_settings({**SERVERS, name: 5})[name] == "5"


def test_never_closing_idle_connections_is_zero_for_one_client_and_minus_one_for_the_other() -> None:
    assert java_settings({**SERVERS, "connections.max.idle.ms": 0})["connections.max.idle.ms"] == "-1"


@pytest.mark.parametrize("name", sorted(CLIENT_ONLY | {"linger.ms", "queue.buffering.max.kbytes", "compression.type"}))
def test_the_tuning_of_librdkafka_is_left_out(name: str) -> None:
    assert name not in java_settings({**SERVERS, name: "5"})


def test_no_setting_is_in_two_lists() -> None:
    assert not SHARED & HANDLED
    assert not SHARED & CLIENT_ONLY
    assert not HANDLED & CLIENT_ONLY


def test_librdkafka_gets_everything_but_what_only_a_consumer_takes() -> None:
    kafka = {**SERVERS, "group.id": "g", "auto.offset.reset": "latest", "sasl.password": "p", "linger.ms": 5}
    assert client_settings(kafka) == {**SERVERS, "sasl.password": "p", "linger.ms": 5}


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


def test_every_known_secret_of_the_mapping_is_kept_out_of_documents() -> None:
    sensitive = {
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
    }
    assert {name for name in HANDLED if is_secret(name)} == sensitive
