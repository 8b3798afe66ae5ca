"""What the driver starts for each task."""

import os
import sys

if __name__ == "__main__":
    # It is isolated from what users have installed, so it finds no package, not even its own; without `dfrs` around it,
    # that is a small one.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "supervisor"
    from .loop import main

    main(sys.argv[1], int(sys.argv[2]))
