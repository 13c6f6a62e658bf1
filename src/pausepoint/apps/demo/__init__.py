"""``python -m pausepoint.apps.demo``: a session is killed, resumed, paused and resumed, before your eyes."""
