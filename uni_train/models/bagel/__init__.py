"""BAGEL (Deng et al. 2025): a mixture-of-transformers decoder that reads and writes text and images.

Parameter names are the official ones, so a released checkpoint loads without a mapping.
"""
