"""Applications: whole systems on the public names of `pausepoint`, each a program of its own (``pausepoint[apps]``)."""
