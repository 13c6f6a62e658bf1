"""``python -m pausepoint.apps.demo``: watch a session being killed, resumed and paused; ``--serve`` for a web page."""
