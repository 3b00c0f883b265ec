"""What a process runs with: threads, worker processes, signals, memory bounds, files in a folder that is confined."""
