"""Queens that do not attack one another."""
