"""Applications: complete systems built on the public names of `pausepoint`. Each is a program (``pausepoint[apps]``)."""
