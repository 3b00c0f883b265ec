"""Evidence for the golden files: what others made of the same bytes. See the README here."""
