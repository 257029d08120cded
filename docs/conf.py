"""The documentation as a site: ``dev/docs`` builds it."""

project = "airflow_provider_cdc"
author = "The airflow_provider_cdc authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # "…" in examples is no Python and no JSON
html_theme = "furo"
html_title = project
exclude_patterns = ["grafana"]
