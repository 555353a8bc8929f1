"""What takes the place of values: transformers, by family. Pure: Arrow arrays in, Arrow arrays out.

``contract.py`` is what each one promises, ``registry.py`` finds them by name.
"""
