"""Parts of running commands: inputs, progress, jobs, outputs, live screens."""
