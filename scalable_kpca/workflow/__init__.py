"""What ``skpca run`` executes: configuration, run directory, lock, stages, publishing."""

__all__: list[str] = []
