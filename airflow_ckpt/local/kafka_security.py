"""The SASL_SSL side of a local cluster: a self-signed CA, a certificate, and users with generated passwords."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.private_file import write_private

# `admin` may do anything; `app` may do what no ACL forbids.
USERS = ("admin", "app")
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# A local stack must not die of an expired certificate.
VALID_FOR = timedelta(days=3650)

_TRUSTSTORE = "truststore"


@dataclass(frozen=True)
class Security:
    """The folder with certificates and passwords of one cluster."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The CA's certificate as PEM, for librdkafka."""
        return self.folder / "ca.pem"

    @property
    def truststore(self) -> Path:
        """The CA's certificate as a PKCS12 truststore, for Java."""
        return self.folder / "truststore.p12"

    @property
    def truststore_password(self) -> str:
        """Opens the truststore."""
        return self._passwords()[_TRUSTSTORE]

    def password(self, user: str) -> str:
        """The password of a user."""
        passwords = self._passwords()
        if user not in USERS:
            raise StackError(f"there is no Kafka user {user!r}: the users are {', '.join(USERS)}")
        return passwords[user]

    def server_settings(self) -> dict[str, str]:
        """What a broker needs to offer SASL_SSL and to check ACLs."""
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        users = " ".join(f'user_{user}="{self.password(user)}"' for user in USERS)
        plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        return {
            "sasl.enabled.mechanisms": ",".join([*MECHANISMS, "PLAIN"]),
            **{f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": scram for mechanism in MECHANISMS},
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            # The brokers talk to each other over the plaintext listener, where everybody is ANONYMOUS.
            "super.users": "User:admin;User:ANONYMOUS",
        }

    def scram_arguments(self) -> str:
        """The users for `StorageTool format`, one argument a line, for a file: `ps` shows arguments to everybody."""
        lines = []
        for user in USERS:
            for mechanism in MECHANISMS:
                lines += ["--add-scram", f"{mechanism}=[name={user},password={self.password(user)}]"]
        return "\n".join(lines) + "\n"

    def _passwords(self) -> dict[str, str]:
        try:
            passwords: dict[str, str] = json.loads((self.folder / "passwords.json").read_text())
        except OSError as error:
            raise StackError(
                f"this Kafka has no SASL_SSL listener ({self.folder} is missing): start one with sasl_ssl=True"
            ) from error
        return passwords


def create(folder: Path, keytool: Path) -> Security:
    """Make certificates and passwords, or keep those that are there."""
    if folder.exists():
        return Security(folder)
    draft = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    passwords = {name: secrets.token_urlsafe(18) for name in (*USERS, _TRUSTSTORE)}
    write_private(draft / "passwords.json", json.dumps(passwords))
    _write_certificates(draft)
    _write_truststore(draft, keytool, passwords[_TRUSTSTORE])
    draft.rename(folder)
    return Security(folder)


def _write_certificates(folder: Path) -> None:
    """One CA, and one certificate for all brokers, as they share the address. The CA's key is thrown away."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "airflow-ckpt local CA")])
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), ca_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    write_private(folder / "server.pem", (private + certificate.public_bytes(pem) + ca.public_bytes(pem)).decode())


def _certificate(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    # A clock that is set back a little must not make it invalid.
    since = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(since + VALID_FOR)
    )


def _write_truststore(folder: Path, keytool: Path, password: str) -> None:
    argv = [str(keytool), "-importcert", "-noprompt", "-alias", "ca", "-file", str(folder / "ca.pem")]
    argv += ["-storetype", "PKCS12", "-keystore", str(folder / "truststore.p12"), "-storepass:env", "STOREPASS"]
    made = subprocess.run(argv, env={**os.environ, "STOREPASS": password}, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise StackError(f"{keytool} could not make a truststore: {(made.stdout + made.stderr).strip()}")
