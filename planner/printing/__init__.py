"""The output of the core's commands: facts and tables for people, in words, on a terminal or into a file."""
