"""``python -m pausepoint`` is the command line."""

from __future__ import annotations

from pausepoint.cli import main

if __name__ == "__main__":
    main()
