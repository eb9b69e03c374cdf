"""`python -m restkeeper`: the command `restkeeper`."""

import sys
from pathlib import Path

from restkeeper.cli.main import main

if __name__ == "__main__":
    # gunicorn starts this file again on USR2; parts of the engine must not be imported as top-level modules then.
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    main(prog_name="restkeeper")
