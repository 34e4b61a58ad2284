"""What outlives a process: files, folders and journals of agents."""
