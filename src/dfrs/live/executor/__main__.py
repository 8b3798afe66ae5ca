"""The program of a job that is a call. What it pickles is of modules with names, and not of this one."""

import sys

from dfrs.live.executor.remote_call import main

# Processes that the function starts may import this module.
if __name__ == "__main__":
    sys.exit(main())
