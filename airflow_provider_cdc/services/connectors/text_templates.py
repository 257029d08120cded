"""Templates of operators and sensors whose results stay texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.services.connectors.parameter_checks import CheckedParameters

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context


class TextTemplates(CheckedParameters):
    """Renders templates so that texts stay texts, also in a DAG with ``render_template_as_native_obj``.

    Jinja would make the number 2024 of a topic prefix ``2024``. Lists, mappings and ``None`` of a template are used as they are.
    """

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        rendered = super().render_template(content, context, jinja_env, seen_oids)  # type: ignore[misc]
        if not isinstance(content, str) or rendered == content:
            return rendered
        dag = self.get_dag()  # type: ignore[attr-defined]
        if dag is None or not dag.render_template_as_native_obj:
            return rendered
        if not any(mark in content for mark in ("{{", "{%", "{#")):
            return content
        if not isinstance(rendered, str | int | float | complex | bytes):
            return rendered
        from airflow.sdk.definitions.context import render_template_to_string

        return render_template_to_string(dag.get_template_env(force_sandboxed=True).from_string(content), context)
