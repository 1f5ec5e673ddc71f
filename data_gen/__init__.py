"""Tasks whose answers are computed exactly: items, reference thoughts, pictures, verifiers, audits."""
