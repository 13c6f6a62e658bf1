"""``python -m pausepoint.demo``: a session is killed, resumed, paused and resumed, before your eyes."""
