"""The web page, made with NiceGUI."""
