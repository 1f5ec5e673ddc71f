"""What every other package stands on: errors, registries, seeds, and the reading and writing of files."""
