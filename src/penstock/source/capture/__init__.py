"""What every capture process is made of, whatever it reads."""
