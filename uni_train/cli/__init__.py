"""The command line. Nothing here computes; bodies of commands import what they need when they run."""
