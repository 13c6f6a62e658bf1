"""``python -m pausepoint.apps.demo``: watch a session being killed, resumed, paused and resumed again."""
