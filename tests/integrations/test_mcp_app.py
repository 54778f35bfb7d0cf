"""Tests of the MCP App in a real browser, inside a fake host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.explain.browser import needs_chromium, opened
from tests.integrations.mcp_client import call, read_text
from visar.index import Index
from visar.integrations.mcp import create_server
from visar.integrations.mcp.server import EXPLAIN_APP

QUESTION = "How did capital expenditure change between 2020 and 2024?"
# The policy is the one that the extension prescribes for apps that ask for nothing.
HOST = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
media-src 'self' data:; connect-src 'none'">
<iframe sandbox="allow-scripts" width="900" height="600"></iframe>
<script>
const [app, result] = DATA;
const frame = document.querySelector("iframe");
const tell = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
window.told = [];
addEventListener("message", ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  told.push(data);
  if (data.method === "ui/initialize") tell({ id: data.id, result: {
    protocolVersion: data.params.protocolVersion, hostInfo: { name: "test", version: "1" },
    hostCapabilities: {}, hostContext: { theme: "light" } } });
  if (data.method === "ui/notifications/initialized") {
    tell({ method: "ui/notifications/tool-input", params: { arguments: {} } });
    tell({ method: "ui/notifications/tool-result", params: result });
    tell({ id: 7, method: "ui/resource-teardown", params: {} });
  }
});
frame.srcdoc = app;
</script>
"""


def host(folder: Path, app: str, result: Any) -> Path:
    """Write the page of a host, with the result that it sends to the app."""
    page = folder / "host.html"
    data = json.dumps([app, result]).replace("<", "\\u003c")
    page.write_text(HOST.replace("DATA", data), encoding="utf-8")
    return page


@needs_chromium
def test_the_app_shows_the_explanation_that_a_host_sends(library: Index, tmp_path: Path) -> None:
    server = create_server(library)
    app = read_text(server, EXPLAIN_APP)
    result = call(server, "explain", question=QUESTION)
    plain = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    with opened(host(tmp_path, app, plain)) as seen:
        shown = seen.page.frame_locator("iframe")
        shown.locator("h1").wait_for()
        assert shown.locator("h1").inner_text() == QUESTION
        assert shown.locator(".hit").count() == 3
        assert shown.locator(".sheet canvas").count() == 3
        assert shown.locator(".reasons rect.page.chosen").count() == 3
        frame = seen.page.frames[1]
        assert frame.evaluate("[...document.images].every((one) => one.naturalWidth > 400)")
        shown.get_by_role("button", name="expenditure", exact=True).click()
        seen.page.wait_for_function(
            "told.some((one) => one.id === 7) && "
            "told.some((one) => one.method?.endsWith('size-changed') && one.params.height > 1000)"
        )
        told = seen.page.evaluate("told")
        assert [
            one["method"] for one in told if "method" in one and "size" not in one["method"]
        ] == [
            "ui/initialize",
            "ui/notifications/initialized",
        ]
        assert not seen.requests
        assert not [one for one in seen.complaints if "willReadFrequently" not in one]


@needs_chromium
def test_the_app_shows_the_text_of_a_result_without_data(tmp_path: Path, library: Index) -> None:
    server = create_server(library)
    app = read_text(server, EXPLAIN_APP)
    failed = call(server, "explain", question="What?", documents=["<b>none</b>.pdf"])
    assert failed.is_error
    plain = failed.model_dump(mode="json", by_alias=True, exclude_none=True)
    with opened(host(tmp_path, app, plain)) as seen:
        said = seen.page.frame_locator("iframe").locator("main p")
        assert "'<b>none</b>.pdf'" in said.inner_text()
