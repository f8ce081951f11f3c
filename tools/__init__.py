"""Sets a checkout up and builds its tools; standard library only, for it runs before anything is installed."""
