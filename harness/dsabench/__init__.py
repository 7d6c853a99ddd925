"""dsabench: measure, tune and prove serving settings of DeepSeek-Sparse-Attention models."""

__version__ = "0.1.0"
