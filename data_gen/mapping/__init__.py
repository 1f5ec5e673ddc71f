"""Symbol mapping: draw what a symbol stands for, at the end of a chain of rules."""
