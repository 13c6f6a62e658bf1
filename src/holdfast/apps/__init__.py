"""Applications: whole systems on the public names of `holdfast`, each a program of its own (``holdfast[apps]``)."""
