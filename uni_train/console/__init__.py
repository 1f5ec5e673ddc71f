"""What is said on a terminal: progress, tables, errors. The Python API and the command line share it."""
