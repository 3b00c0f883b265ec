"""What commands run with: inputs, progress, jobs, outputs, live screens."""
