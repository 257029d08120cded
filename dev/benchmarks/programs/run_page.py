"""The seconds of a request to the plugin's API: ``python -m dev.benchmarks.programs.run_page PATH`` prints them.

They are the median of five requests after a first one. The app answers within this process, to a user who may see everything: the
route is measured, not Airflow's server around it.
"""

from __future__ import annotations

import statistics
import sys
import time


def main() -> int:
    from airflow.api_fastapi import app as airflow_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from airflow_provider_cdc.plugins import authorization
    from airflow_provider_cdc.plugins.plugin_app import app

    airflow_app._AuthManagerState.instance = SimpleAuthManager()
    authorization.known_dags = lambda ids: {id_: authorization.KnownDag(id_) for id_ in ids}
    authorization.teams_of = lambda conn_ids: {}
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="bench", role="ADMIN")
    client, taken = TestClient(app), []
    for _ in range(6):
        began = time.perf_counter()
        answer = client.get(sys.argv[1])
        taken.append(time.perf_counter() - began)
        if answer.status_code != 200:
            print(answer.text, file=sys.stderr)
            return 1
    print(statistics.median(taken[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
