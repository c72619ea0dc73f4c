"""Unit tests see no credentials but their own."""

import os

for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
