"""The command line: parsing, output, signals, exit codes. Everything else is in `workflow`.

Heavy imports wait until a command needs them: ``--help`` answers at once.
"""

from __future__ import annotations

import click

from scalable_kpca.cli.failures import NamedErrors
from scalable_kpca.cli.jobs import plan, run
from scalable_kpca.cli.machine import doctor, schema
from scalable_kpca.cli.outputs import report, status, unlock, verify
from scalable_kpca.cli.rows import transform, update
from scalable_kpca.console import open_standard_streams
from scalable_kpca.stopping import leaving_when_told

__all__ = ["main", "skpca"]


@click.group(cls=NamedErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="scalable-kpca")
def skpca() -> None:
    """Exact, certified, resumable kernel PCA for data whose Gram matrix fits nowhere."""


for command in (run, plan, update, transform, verify, status, report, unlock, schema, doctor):
    skpca.add_command(command)


def main() -> None:
    """Run the command line, in a process of its own."""
    open_standard_streams()
    with leaving_when_told():
        skpca()
