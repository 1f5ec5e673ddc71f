"""Maths: draw as many things as an expression is worth. The task, and the expressions that it draws."""
