"""The parts of the run, one idea a file: each has ``run(told)``."""
