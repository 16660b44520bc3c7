"""The ``fairgpu`` command line: one module per verb."""
