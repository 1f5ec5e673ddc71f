"""Pages of runs, evaluations, comparisons and leaderboards: one HTML file each."""
