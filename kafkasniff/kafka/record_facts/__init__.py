"""What the headers and values of records say: ids of schemas and of traces."""
