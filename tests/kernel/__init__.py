"""The stream engine of the native kernel."""
