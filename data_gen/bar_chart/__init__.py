"""Bar charts of tables."""
