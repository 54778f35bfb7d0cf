"""Adapters for frameworks and assistants: LangChain, LlamaIndex, Haystack and MCP."""
