"""DGL's distributed engine on one computer: its store, servers and trainers, with the backend on and off."""
