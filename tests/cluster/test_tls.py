"""A scheduler that speaks TLS only, its workers, and who may talk to them."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.processes import Cluster, skpca
from tests.recovery.jobs import JOBS, bits_of, latest_run, write_job

pytestmark = pytest.mark.slow

FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 10}


def write_certificates(folder: Path) -> dict[str, str]:
    """An authority, and one certificate of it with its key."""
    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "own")}
    names = {name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in keys}

    def certificate(name: str, *, is_authority: bool) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(keys[name].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(keys[name].public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["ca"].public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .sign(keys["ca"], hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    folder.mkdir(exist_ok=True)
    (folder / "ca.pem").write_bytes(certificate("ca", is_authority=True))
    (folder / "cert.pem").write_bytes(certificate("own", is_authority=False))
    key = folder / "key.pem"
    key.touch(mode=0o600)
    key.write_bytes(
        keys["own"].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return {"ca": f"{folder.name}/ca.pem", "cert": f"{folder.name}/cert.pem", "key": f"{folder.name}/key.pem"}


def arguments(folder: Path) -> tuple[str, ...]:
    return ("--tls-ca-file", f"{folder}/ca.pem", "--tls-cert", f"{folder}/cert.pem", "--tls-key", f"{folder}/key.pem")


def test_a_scheduler_with_tls_serves_whom_it_knows_and_nobody_else(tmp_path):
    tls = write_certificates(tmp_path / "tls")
    reference = skpca("run", write_job(tmp_path, FIELDS, output={"path": "reference"}))
    assert reference.returncode == 0
    with Cluster(tmp_path, arguments=arguments(tmp_path / "tls")) as cluster:
        cluster.start_workers(1)
        cluster.start_workers(1)
        at = {"kind": "address", "address": cluster.address}
        assert cluster.address.startswith("tls://127.0.0.1:")

        # without certificates, with somebody else's, and without encryption
        for stranger in ({}, {"tls": write_certificates(tmp_path / "other")}):
            refused = skpca("run", write_job(tmp_path, FIELDS, cluster={**at, **stranger}))
            assert refused.returncode in (69, 78), refused.stderr
            assert "cluster.tls" in refused.stderr
            assert "Traceback" not in refused.stderr
        plain = skpca("run", write_job(tmp_path, FIELDS, cluster={**at, "address": f"tcp{cluster.address[3:]}"}))
        assert plain.returncode == 69
        assert "no Dask scheduler answers at tcp://" in plain.stderr

        known = skpca("run", write_job(tmp_path, FIELDS, cluster={**at, "tls": tls}))
        assert known.returncode == 0, known.stderr
    assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))


def test_a_key_that_others_may_read_is_refused(tmp_path):
    tls = write_certificates(tmp_path / "tls")
    (tmp_path / "tls" / "key.pem").chmod(0o640)
    refused = skpca(
        "run", write_job(tmp_path, FIELDS, cluster={"kind": "address", "address": "tls://127.0.0.1:1", "tls": tls})
    )
    assert refused.returncode == 78
    assert f"{tmp_path / 'tls' / 'key.pem'} has mode 0640, others may read it; run chmod 600" in refused.stderr


def test_certificates_are_not_used_for_a_connection_without_encryption(tmp_path):
    tls = write_certificates(tmp_path / "tls")
    refused = skpca(
        "run", write_job(tmp_path, FIELDS, cluster={"kind": "address", "address": "tcp://127.0.0.1:1", "tls": tls})
    )
    assert refused.returncode == 78
    assert "cluster.address=tcp://127.0.0.1:1 is not encrypted; use tls://HOST:PORT" in refused.stderr


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_missing_file_is_named(tmp_path, name):
    tls = write_certificates(tmp_path / "tls")
    (tmp_path / tls[name]).unlink()
    refused = skpca(
        "run", write_job(tmp_path, FIELDS, cluster={"kind": "address", "address": "tls://127.0.0.1:1", "tls": tls})
    )
    assert refused.returncode == 78
    assert f"cluster.tls.{name}: {tmp_path / tls[name]} is not a file" in refused.stderr
