"""Applications: complete systems built on `pausepoint`'s public names. Each is a program (``pausepoint[apps]``)."""
