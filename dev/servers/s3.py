"""An S3 server in memory (moto)."""

import sys
import urllib.error
import urllib.request
from typing import Any

from dev import paths
from dev.servers.base import Server


class S3(Server):
    """moto's S3 in its own process. It checks no credentials and forgets everything when it ends."""

    kind = "s3"
    user = "cdc"
    password = "cdc-secret"
    region = "us-east-1"

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://{self.host}:{self.port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        """The options for fsspec and s3fs."""
        return {
            "key": self.user,
            "secret": self.password,
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": self.region},
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make boto3, s3fs and the like of another process talk to this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": self.password,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }

    def connect(self, **overrides: Any) -> Any:
        """A boto3 client."""
        import boto3

        credentials = {
            "aws_access_key_id": self.user,
            "aws_secret_access_key": self.password,
            "region_name": self.region,
        }
        return boto3.client("s3", **{"endpoint_url": self.endpoint, **credentials, **overrides})

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its ``s3://`` address."""
        self.connect().create_bucket(Bucket=name)
        return f"s3://{name}"

    def _prepare(self) -> None:
        """Nothing: it lives in memory."""

    def _command(self) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-m", "dev.servers.s3_app", "-H", self.host, "-p", str(self.port)], {
            "PYTHONPATH": str(paths.ROOT)
        }

    def _answers(self) -> bool:
        request = urllib.request.Request(f"{self.endpoint}/moto-api/")
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
