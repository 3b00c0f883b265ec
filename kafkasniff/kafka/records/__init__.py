"""Record batches, message sets, compression, control records."""
