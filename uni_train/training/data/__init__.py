"""Training rows on disk as examples: one file a form, all read through `rows.Rows`."""
