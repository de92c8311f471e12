"""What happens around the step: logging, checkpoints, averaging, pictures. One technique a file."""
