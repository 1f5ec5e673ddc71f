"""Several processes as one run: how they start, find each other, are compared and watched, and end together."""
