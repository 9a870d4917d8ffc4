"""What ``simulate`` is made of: chance, faults, and what is checked."""
