"""What a run is on the disk: checkpoints, the folder they are in, and how a run goes on from them."""
