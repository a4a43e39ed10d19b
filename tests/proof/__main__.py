"""`python -m tests.proof`: see README.md."""

import sys

from .run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
