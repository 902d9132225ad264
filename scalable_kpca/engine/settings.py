"""Which Dask scheduler runs the tasks, and how it is started or reached."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalable_kpca.errors import ConfigError

__all__ = ["BACKENDS", "KINDS", "STALL_SECONDS", "ClusterSettings", "Tls"]

STALL_SECONDS = 1800.0  # without a finished key, before a run gives up
WAIT_SECONDS = 30.0  # for a scheduler that runs to have workers
QUEUE_SECONDS = 3600.0  # for workers that wait for their turn on a cluster that others use too

# classes of dask's projects that start a cluster, and the extra of this package that brings each of them
BACKENDS = {
    "slurm": ("dask_jobqueue:SLURMCluster", "slurm"),
    "ssh": ("distributed:SSHCluster", "ssh"),
    "gateway": ("dask_gateway:GatewayCluster", "gateway"),
    "kubernetes": ("dask_kubernetes.operator:KubeCluster", "kubernetes"),
}
KINDS = ("threads", "synchronous", "client", "local", "address", *BACKENDS, "slurm-runner", "import")


@dataclass(frozen=True)
class Tls:
    """PEM files for an encrypted scheduler.

    Attributes
    ----------
    ca, cert, key : Path
        Certificates to trust; this client's own; its key, readable by nobody else.
    """

    ca: Path
    cert: Path
    key: Path

    def security(self) -> Any:
        """Settings of `distributed` that let nothing through unencrypted.

        Raises
        ------
        ConfigError
            When a file is missing, or others may read the key.
        """
        from distributed import Security

        for name in ("ca", "cert", "key"):
            file: Path = getattr(self, name)
            if not file.is_file():
                raise ConfigError(f"cluster.tls.{name}: {file} is not a file; give the path of a PEM file.")
        mode = stat.S_IMODE(self.key.stat().st_mode)
        if mode & 0o077:
            raise ConfigError(
                f"cluster.tls.key: {self.key} has mode {mode:04o}, others may read it; run chmod 600 {self.key}."
            )
        return Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.cert),
            tls_client_key=str(self.key),
            require_encryption=True,
        )


@dataclass(frozen=True)
class ClusterSettings:
    """A kind of scheduler and what it needs.

    Attributes
    ----------
    kind : str
        One of `KINDS`. ``"local"`` starts worker processes on the loopback interface; ``"address"`` connects;
        ``"client"`` uses the active `distributed` client; ``"slurm-runner"`` is one of the tasks of ``srun``;
        ``"import"`` is any other class that starts a Dask cluster.
    n_workers : int, optional
        Processes of ``"local"``.
    dashboard : bool
        Whether ``"local"`` serves dask's dashboard, on the loopback interface.
    address : str, optional
        Of a scheduler, for ``"address"``.
    scheduler_file : Path, optional
        JSON file that a scheduler has written, or will: in the place of `address`.
    tls : Tls, optional
        Of ``"address"``: nothing is said unencrypted then.
    class_path : str, optional
        ``"package.module:Class"`` of ``"import"``.
    options : mapping
        Keywords of the class that starts a cluster, by its own names.
    scale : int or mapping, optional
        What its method `scale` is called with: a number of workers, or keywords.
    adapt : mapping, optional
        Keywords of its method `adapt`.
    wait_for : int
        Workers that a run begins with.
    wait : float, optional
        Seconds for these to join; by default half a minute for a scheduler that runs and an hour for one that is
        started, whose workers may wait in a queue.
    stall : float
        Seconds without anything finished after which a run gives up.
    report : bool
        Whether a performance report is to be made: workers of ``"local"`` note what they are at, which takes a tenth of
        a pass, and a scheduler that could not draw it is refused.
    """

    kind: str = "threads"
    n_workers: int | None = None
    dashboard: bool = False
    address: str | None = None
    scheduler_file: Path | None = None
    tls: Tls | None = None
    class_path: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    scale: int | Mapping[str, Any] | None = None
    adapt: Mapping[str, Any] | None = None
    wait_for: int = 1
    wait: float | None = None
    stall: float = STALL_SECONDS
    report: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"cluster kind {self.kind!r} is not known; choose one of {', '.join(KINDS)}.")

    @property
    def seconds(self) -> float:
        """To wait for workers."""
        queues = self.kind in BACKENDS or self.kind in ("slurm-runner", "import")
        return self.wait if self.wait is not None else QUEUE_SECONDS if queues else WAIT_SECONDS

    @property
    def patience(self) -> float:
        """Seconds for a worker to answer."""
        return WAIT_SECONDS if self.wait is None else self.wait
