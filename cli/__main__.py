"""`python -m aot.cli`: the same as the command `aot`."""
import sys

from aot.cli import main

sys.exit(main())
