"""What commands print: tables, progress and text that cannot control the terminal."""
