//! The contract of the llm port.
