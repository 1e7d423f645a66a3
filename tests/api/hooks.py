"""What a schema cannot say: what exists, whom webhooks may lead to, and how a provider signs."""

import hashlib
import hmac
import json
import os
import urllib.request

import schemathesis

BASE = os.environ["HIKYAKU_TEST_BASE"]
TOKEN = os.environ["HIKYAKU_API_TOKEN"]
RECEIVER = os.environ["HIKYAKU_TEST_RECEIVER"]
SECRET = os.environ["HIKYAKU_TEST_SOURCE_SECRET"].encode()
ORGANIZATION = "/v1/organizations/default"
# These exist from the start.
NAMES = {"organization": "default", "event": "sale-1", "source": "receiptroller", "delivery": "sale-1"}


def make(path, body):
    """Makes something and gives its id."""
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    request = urllib.request.Request(f"{BASE}{ORGANIZATION}/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["id"]


def existing(name, value, made):
    """An id of something that exists; deletes come too, so each request has its own."""
    match name:
        case "webhook":
            return make("webhooks", {"url": RECEIVER})
        case "token":
            return make("tokens", {})
        case "recovery":
            return make(f"webhooks/{made['webhook']}/recover", {"from": "2026-11-30T00:00:00Z", "which": "all"})
        case _:
            return NAMES.get(name, value)


@schemathesis.hook
def before_call(context, case, kwargs):
    # The stateful phase makes what it asks for; invalid requests shall stay invalid.
    if case.meta.generation.mode.value == "positive" and case.meta.phase.name.value != "stateful":
        made = {}
        for name in sorted(case.path_parameters, key=lambda name: name == "recovery"):
            made[name] = existing(name, case.path_parameters[name], made)
        case.path_parameters.update(made)
    body = case.body
    # Made-up URLs would have names looked up, and some of them lead to somebody.
    if isinstance(body, dict) and str(body.get("url", "")).startswith("http"):
        body["url"] = RECEIVER
    # A signature that has the right form gets the right value; the others stay wrong.
    headers = case.headers or {}
    if case.path == "/in/{source}" and str(headers.get("x-rr-signature", "")).startswith("sha256="):
        data = getattr(body, "data", b"")
        headers["x-rr-signature"] = "sha256=" + hmac.new(SECRET, data, hashlib.sha256).hexdigest()
