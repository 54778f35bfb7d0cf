"""The annual report of Harbour Light plc, a company that does not exist."""
