"""What runs beside Petals: the only code that imports it, in functions, so that nothing here is heavy to import."""
