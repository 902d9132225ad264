"""A scheduler that speaks TLS only, its workers, and who may talk to them."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.processes import Cluster, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, write_job

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
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

        known = skpca("run", write_job(tmp_path, FIELDS, cluster={**at, "tls": tls}))
        assert known.returncode == 0, known.stderr
    assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    """A folder with certificates in `tls` and those of another authority in `other`, and HOST:PORT of a scheduler."""
    folder = tmp_path_factory.mktemp("encrypted")
    write_certificates(folder / "other")
    write_certificates(folder / "tls")
    with Cluster(folder, arguments=arguments(folder / "tls")) as cluster:
        yield folder, cluster.address.removeprefix("tls://")


FILES = {name: f"tls/{name}.pem" for name in ("ca", "cert", "key")}
NO_CERTIFICATES = (
    r"the Dask scheduler at {address} answers those with certificates alone, and none are given; set cluster\.tls to "
    r"its authority, and a certificate and key of that \(ca, cert, key\)\."
)
NO_ANSWER = r"no Dask scheduler answers at {address} within 5 s \(.*\); "
NOT_ENCRYPTED = (
    NO_ANSWER + r"if it answers those with certificates alone, give its address as tls://HOST:PORT, and cluster\.tls\."
)
OF_ANOTHER_AUTHORITY = (
    NO_ANSWER + r"start one or correct it, and see that cluster\.tls names the authority that has signed its "
    r"certificate, and a certificate and key of the same one\."
)
NO_PAIR = (
    r"cluster\.tls: .*/tls/ca\.pem, .*/tls/cert\.pem and .*/other/key\.pem are not an authority, a certificate and the "
    r"key of that certificate, in PEM \(.*\); correct them\."
)


@pytest.mark.parametrize(
    ("scheme", "tls", "exit_code", "message"),
    [
        pytest.param("tls://", None, 69, NO_CERTIFICATES, id="no certificates"),
        pytest.param("tcp://", None, 69, NOT_ENCRYPTED, id="no encryption"),
        pytest.param("", None, 69, NOT_ENCRYPTED, id="no scheme"),
        pytest.param("tls://", "ca cert key", 69, OF_ANOTHER_AUTHORITY, id="all of another authority"),
        pytest.param("tls://", "ca", 69, OF_ANOTHER_AUTHORITY, id="the scheduler is not trusted"),
        pytest.param("tls://", "cert key", 69, OF_ANOTHER_AUTHORITY, id="the scheduler does not trust"),
        pytest.param("tls://", "key", 78, NO_PAIR, id="key of another certificate"),
    ],
)
def test_a_stranger_is_told_within_ten_seconds_what_to_give(tmp_path, encrypted, scheme, tls, exit_code, message):
    folder, place = encrypted
    section: dict = {"kind": "address", "address": f"{scheme}{place}"}
    if tls is not None:
        others = tls.split()
        files = {name: file.replace("tls/", "other/") if name in others else file for name, file in FILES.items()}
        section["tls"] = {name: str(folder / file) for name, file in files.items()}
    job = write_job(tmp_path, FIELDS, cluster=section)
    before = time.monotonic()
    refused = skpca("run", job)
    seconds = time.monotonic() - before
    assert refused.returncode == exit_code, refused.stderr
    sentence = message.format(address=re.escape(f"{scheme}{place}"))
    assert re.fullmatch(rf"Error: {sentence}\n", refused.stderr), refused.stderr
    assert seconds < 10
    assert not (tmp_path / "out" / "latest.json").exists()


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


@pytest.fixture
def copied(tmp_path) -> Path:
    """Folder with what a user copies, and the certificates that it makes."""
    shutil.copytree(ROOT / "cluster" / "tls", tmp_path / "tls")
    made = subprocess.run(
        ["sh", "tls/certificates.sh", "certificates", "localhost", "127.0.0.1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return tmp_path


def test_the_scripts_of_the_repository_make_a_cluster_that_its_section_uses(copied):
    reference = skpca("run", write_job(copied, FIELDS, output={"path": "reference"}))
    assert reference.returncode == 0
    section = yaml.safe_load((copied / "tls" / "section.yaml").read_text())["cluster"]
    section |= {"n_workers": 2, "n_threads": 1, "wait_for": 2}  # of this machine
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    with contextlib.ExitStack() as stack:
        for command in (["scheduler.sh", "--port", "0"], ["worker.sh", "--nworkers", "2", "--nthreads", "1"]):
            script, *options = command
            line = ["sh", f"tls/{script}", "certificates", "127.0.0.1", *options]
            log = stack.enter_context((copied / f"{script}.log").open("w"))
            process = subprocess.Popen(line, cwd=copied, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_until(lambda: (copied / "scheduler.json").exists())
        done = skpca("run", write_job(copied, FIELDS, cluster=section))
        assert done.returncode == 0, done.stderr
        stranger = {name: value for name, value in section.items() if name != "tls"}
        refused = skpca("run", write_job(copied, FIELDS, seed=1, cluster=stranger))
        assert refused.returncode == 69
        assert "answers those with certificates alone, and none are given; set cluster.tls" in refused.stderr
    assert bits_of(latest_run(copied / "out")) == bits_of(latest_run(copied / "reference"))


def test_keys_are_for_their_owner_and_are_not_made_twice(copied):
    assert {path.stat().st_mode & 0o777 for path in (copied / "certificates").iterdir()} == {0o600}
    before = {path: path.read_bytes() for path in (copied / "certificates").iterdir()}
    again = subprocess.run(
        ["sh", "tls/certificates.sh", "certificates", "h"], cwd=copied, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "certificates/ca.key is there: choose another directory" in again.stderr
    assert {path: path.read_bytes() for path in (copied / "certificates").iterdir()} == before
