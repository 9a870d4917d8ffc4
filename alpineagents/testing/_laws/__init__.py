"""What every Store must do, one class of laws per subject; ``StoreLaws`` is all of them."""
