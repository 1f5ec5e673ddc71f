"""Starting a run as several processes, and what can go wrong with it: scripts, checks, hangs, preemption."""
