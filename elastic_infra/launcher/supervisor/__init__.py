"""The supervisor's process: owns every process of the launcher, ends them in time, and returns the exit code."""
