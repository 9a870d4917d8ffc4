"""What replay_run is made of."""
