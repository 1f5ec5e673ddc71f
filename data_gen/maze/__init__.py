"""Mazes (ViGoR section 4.3): carved, drawn, solved in red, and judged from an image."""
