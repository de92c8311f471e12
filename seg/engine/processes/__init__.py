"""The processes of a run: how they are started, meet, watch each other and end."""
