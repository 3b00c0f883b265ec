"""Keys and values of records, decoded by the schemas of a registry, a folder or a file."""
