"""The SASL_SSL side of a local cluster: its own CA, a certificate, and users with generated passwords."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.private_file import replace_private

# `admin` may do anything; `app` may do everything that no ACL forbids.
USERS = ("admin", "app")
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Security:
    """The folder with certificates and passwords of one cluster."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The CA's certificate as PEM, for clients."""
        return self.folder / "ca.pem"

    def password(self, user: str) -> str:
        """The password of a user."""
        passwords = self._passwords()
        if user not in USERS:
            raise StackError(f"there is no Kafka user {user!r}: the users are {', '.join(USERS)}")
        return passwords[user]

    def server_settings(self) -> dict[str, str]:
        """The settings of a broker with SASL_SSL and ACLs."""
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
            # The brokers use the plaintext listener among themselves, where every client is ANONYMOUS.
            "super.users": "User:admin;User:ANONYMOUS",
        }

    def scram_arguments(self) -> str:
        """The users for `StorageTool format`, one argument per line, for a file, because `ps` shows arguments to every user."""
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


def create(folder: Path) -> Security:
    """Make certificates and passwords, unless they exist already."""
    if folder.exists():
        return Security(folder)
    draft = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    replace_private(draft / "passwords.json", json.dumps({user: secrets.token_urlsafe(18) for user in USERS}))
    _write_certificates(draft)
    draft.rename(folder)
    return Security(folder)


def _write_certificates(folder: Path) -> None:
    """Write a CA, whose key is not kept, and one certificate for all brokers, because they have the same address."""
    try:
        import trustme
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise StackError(
            f"the certificates of a SASL_SSL listener need {error.name}, which is not installed: "
            "pip install 'airflow-ckpt[local]'"
        ) from error

    ca = trustme.CA(organization_name="airflow-ckpt")
    server = ca.issue_cert("localhost", "127.0.0.1")
    # Kafka reads a private key only as PKCS #8.
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), password=None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ca.cert_pem.write_to_path(folder / "ca.pem")
    chain = [*server.cert_chain_pems, ca.cert_pem]
    replace_private(folder / "server.pem", b"".join([key, *(part.bytes() for part in chain)]).decode())
