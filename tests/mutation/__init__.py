"""Plants faults in the package and counts which of them the tests find (`python -m tests.mutation --help`)."""
