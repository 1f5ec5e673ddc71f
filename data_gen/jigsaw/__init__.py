"""Jigsaws whose pieces fit by the colours of their edges."""
