"""The commands: parse options, build the stages, run them, give an exit code."""
