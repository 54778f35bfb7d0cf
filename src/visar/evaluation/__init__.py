"""How good pages and answers are: benchmarks, metrics, judges, reports."""
