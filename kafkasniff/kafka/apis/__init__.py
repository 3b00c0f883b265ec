"""All APIs: their schemas by key and version, names of releases, what their messages refer to."""
