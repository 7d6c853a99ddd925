"""The static site: records in, pages out; it opens from disk and asks no network."""
