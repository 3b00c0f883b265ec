"""Captures made to measure: crafted conversations, disturbed ones, and the files that hold them. A capture is a list of
`Packet`, whatever file format or link layer it came from or goes to."""
