"""Tasks whose answers are computed exactly: items, reference thoughts, images, verifiers, audits."""
