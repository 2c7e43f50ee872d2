"""`python -m zentence`, also under torchrun."""

from zentence.cli import main

main()
