"""Sets of tasks as one benchmark: what a training run is evaluated by, and what UniSandbox asks beside its files.

benchmark     the sets that a recipe names, in the settings that it names
names         the paper's sets, and those beside them
thoughts      what a thought concludes
counting      the numbers and tables; paper.csv has the published ones
training_run  what summary.json and the page of a run show
"""
