"""How a model is laid out over devices and processes: DDP, FSDP, DataParallel, ZeRO, compiled, checkpointed."""
