"""The driver of `autoscaling.policy: capacity`: it grows a job into idle capacity, and gives nodes up to others."""
