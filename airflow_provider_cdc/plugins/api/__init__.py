"""The API of the pages, which programs may use as well: ``/cdc/api/v1``."""
