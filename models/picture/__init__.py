"""Pictures of a hierarchy: what stands where, how arrows run, and the drawing itself."""
