"""One file per contender. Each is a program that does one job and prints one sample."""
