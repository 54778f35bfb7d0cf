"""Code shared by encoders and generators: hub access, checkpoints, devices and loading."""
