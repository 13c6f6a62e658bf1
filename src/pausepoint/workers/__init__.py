"""Programs that drive the sessions of a store: dispatchers over other systems."""
