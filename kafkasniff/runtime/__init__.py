"""Services of a process: threads, worker processes, signals, memory bounds, files in a folder that is confined."""
