"""What encoders and generators share: hub access, checkpoints, devices, loading."""
