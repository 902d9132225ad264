"""`python -m scalable_kpca.cli` is `skpca`."""

from scalable_kpca.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
