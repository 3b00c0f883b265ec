"""The widgets of the explorer; the only modules that import Textual.

Text from captures reaches Textual only escaped and as `Text`, which has no markup.
"""
