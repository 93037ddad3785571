"""`python -m safedial`."""

from safedial.cli import main

main()
