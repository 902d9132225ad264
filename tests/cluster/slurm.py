"""A Slurm of its own on this machine: controller, node daemon and munge, as processes of root."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.processes import wait_until
from tests.support import skip

__all__ = ["Slurm", "slurm"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
SlurmctldPort={controller}
SlurmdPort={node}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
KillWait=10
OverTimeLimit=0
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
SlurmdParameters=config_overrides
"""


@dataclass(frozen=True)
class Slurm:
    """Where it is, and its commands.

    Attributes
    ----------
    folder : Path
    environment : dict of str to str
        With which its commands find it.
    """

    folder: Path
    environment: dict[str, str]

    def __call__(self, *command: object, check: bool = True) -> str:
        """What a command such as ``squeue`` prints."""
        done = subprocess.run(
            [str(part) for part in command], env=self.environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}\n{self.logs()}"
        return done.stdout.strip()

    def submit(self, script: Path, *options: object) -> str:
        """Number of a job that has been handed in."""
        return self("sbatch", "--parsable", "--export=ALL", *options, script)

    def state(self, job: str) -> str:
        """Such as RUNNING; empty when it is forgotten."""
        return self("squeue", "-h", "-t", "all", "-o", "%T", "-j", job, check=False).split("\n")[0]

    def exit_code(self, job: str, seconds: float = 300) -> int:
        """Of a job, when it has ended."""
        wait_until(lambda: self.state(job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), seconds)
        shown = self("scontrol", "-o", "show", "job", job)
        return int(shown.partition(" ExitCode=")[2].partition(":")[0])

    def logs(self) -> str:
        """The end of what the daemons have written."""
        return "\n".join(file.read_text()[-3000:] for file in sorted((self.folder / "log").glob("*.log")))


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Slurm with one node of eight processors that this machine may not have; skips where it is not installed."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing or os.geteuid() != 0:
        skip(f"Slurm needs root, and {', '.join(missing) or 'nothing else'}: slurmctld slurmd slurm-client munge")
    # the path of a socket has at most 107 letters
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, ExitStack() as stack:
        folder = Path(name)
        for part in ("state", "spool", "log", "run"):
            (folder / part).mkdir()
        folder.chmod(0o755)
        (folder / "munge.key").touch(mode=0o600)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        controller, node = _free_ports(2)
        text = CONFIGURATION.format(host=platform.node(), folder=folder, controller=controller, node=node)
        (folder / "slurm.conf").write_text(text)
        environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
        made = Slurm(folder, environment)

        def start(*command: object) -> None:
            with (folder / "log" / f"{command[0]}.out").open("w") as log:
                process = subprocess.Popen([str(part) for part in command], env=environment, stdout=log, stderr=log)
            stack.callback(_end, process)

        start(
            *("munged", "--force", "--foreground", f"--key-file={folder}/munge.key"),
            *(f"--socket={folder}/run/munge.socket", f"--pid-file={folder}/run/munged.pid"),
            *(f"--log-file={folder}/log/munged.log", f"--seed-file={folder}/run/munge.seed", "--num-threads=2"),
        )
        wait_until(lambda: (folder / "run" / "munge.socket").exists(), 30)
        start("slurmctld", "-D", "-i")
        start("slurmd", "-D")
        wait_until(lambda: made("sinfo", "-h", "-o", "%T", check=False) == "idle", 60)
        stack.callback(made, "scancel", "--full", "--user=root", check=False)
        yield made


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
