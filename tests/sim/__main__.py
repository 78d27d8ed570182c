"""`python -m tests.sim --histories N --seed S`: see `run`."""

import sys

from tests.sim.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
