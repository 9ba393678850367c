"""A plan as a page: the strip of the network, tiles, charts, and a trace for Perfetto."""
