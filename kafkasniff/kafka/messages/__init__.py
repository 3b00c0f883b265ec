"""Header and body: a frame as a `Message`."""
