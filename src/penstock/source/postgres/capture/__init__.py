"""Slot → segments: one small process that holds the slot and decodes no row."""
