"""Makes crates/hikyaku-core/src/provider/vectors.json, with the providers' own libraries wherever they have one for
Python; without --write, says whether it would be another one."""

import base64
import datetime
import hashlib
import hmac
import json
import pathlib
import sys

import stripe
from slack_sdk.signature import SignatureVerifier
from square.utils.webhooks_helper import verify_signature
from standardwebhooks.webhooks import Webhook

FILE = pathlib.Path(__file__).resolve().parents[2] / "crates/hikyaku-core/src/provider/vectors.json"
AT = 1796030100


def mac(secret, content, digest="sha256"):
    return hmac.new(secret.encode(), content.encode(), digest).digest()


def encoded(bytes_):
    return base64.b64encode(bytes_).decode()


def vector(name, provider, secret, headers, body, checked_with, **more):
    """What a delivery says about itself is null where it says nothing."""
    reads = {"id": None, "type": None, "timestamp": None, "key": None}
    return {"name": name, "provider": provider, "secret": secret, "headers": headers, "body": body,
            "checkedWith": checked_with} | reads | more


def standard_webhooks():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = '{"type":"invoice.paid","timestamp":"2026-11-30T09:15:00Z","data":{"id":"inv_1","amount": 29383937493038367292}}'
    at = datetime.datetime.fromtimestamp(AT, datetime.timezone.utc)
    signature = Webhook(secret).sign("msg_2fN", at, body)
    headers = {"webhook-id": "msg_2fN", "webhook-timestamp": str(AT), "webhook-signature": signature}
    reads = {"id": "msg_2fN", "type": "invoice.paid", "timestamp": AT, "key": "inv_1"}
    yield vector("standard-webhooks", "standard-webhooks", secret, headers, body, "standardwebhooks 1.1.0 (PyPI)", **reads)
    several = headers | {"webhook-signature": f"v1,{encoded(mac('other', body))} v2,abc {signature}"}
    yield vector("standard-webhooks-several", "standard-webhooks", secret, several, body, "standardwebhooks 1.1.0 (PyPI)", **reads)
    # The project's own published values, for both of its algorithms; the secret of the second is the public key.
    published = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330"}
    reads = {"id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "timestamp": 1614265330}
    where = "published by the Standard Webhooks project"
    hmac_ = published | {"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
    yield vector("standard-webhooks-published", "standard-webhooks", secret, hmac_, '{"test": 2432232314}', where, **reads)


def stripe_():
    secret = "whsec_test_of_the_stripe_library"
    body = json.dumps({"id": "evt_1", "object": "event", "created": AT, "type": "customer.updated",
                       "data": {"object": {"id": "cus_1", "object": "customer", "name": "飛脚"}}}, indent=2, ensure_ascii=False)
    signature = stripe.WebhookSignature._compute_signature(f"{AT}.{body}", secret)
    header = f"t={AT},v1={signature},v0={'0' * 64}"
    stripe.Webhook.construct_event(body.encode(), header, secret, tolerance=None)
    reads = {"id": "evt_1", "type": "customer.updated", "timestamp": AT, "key": "cus_1"}
    yield vector("stripe", "stripe", secret, {"Stripe-Signature": header}, body, "stripe 16.1.0 (PyPI)", **reads)
    rolled = f"t={AT},v1={'f' * 64},v1={signature}"
    stripe.Webhook.construct_event(body.encode(), rolled, secret, tolerance=None)
    yield vector("stripe-two-secrets", "stripe", secret, {"Stripe-Signature": rolled}, body, "stripe 16.1.0 (PyPI)", **reads)


def github():
    secret = "It's a Secret to Everybody"
    published = {"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    yield vector("github-published", "github", secret, published, "Hello, World!", "GitHub's documentation")
    body = '{"action":"opened","issue":{"number":1347,"node_id":"I_1"},"repository":{"id":1296269}}'
    guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    headers = {"X-GitHub-Event": "issues", "X-GitHub-Delivery": guid,
               "X-Hub-Signature-256": "sha256=" + mac(secret, body).hex(), "X-Hub-Signature": "sha1=" + mac(secret, body, "sha1").hex()}
    where = "@octokit/webhooks-methods 6.0.0 (npm)"
    yield vector("github", "github", secret, headers, body, where, id=guid, type="issues.opened")


def shopify():
    secret = "hush"
    body = '{"id":820982911946154508,"admin_graphql_api_id":"gid://shopify/Order/820982911946154508","email":"jon@example.com"}'
    headers = {"X-Shopify-Topic": "orders/create", "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
               "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5", "X-Shopify-Shop-Domain": "example.myshopify.com",
               "X-Shopify-API-Version": "2026-07", "X-Shopify-Triggered-At": "2026-11-30T09:15:00.123456789Z",
               "X-Shopify-Hmac-Sha256": encoded(mac(secret, body))}
    reads = {"id": headers["X-Shopify-Webhook-Id"], "type": "orders.create", "timestamp": AT,
             "key": "gid://shopify/Order/820982911946154508"}
    yield vector("shopify", "shopify", secret, headers, body, "@shopify/shopify-api 15.0.0 (npm)", **reads)


def square():
    secret, url = "asdf1234", "https://example.com/webhook"
    published = {"x-square-hmacsha256-signature": "2kRE5qRU2tR+tBGlDwMEw2avJ7QM4ikPYD/PJ3bd9Og="}
    yield vector("square-published", "square", secret, published, '{"hello":"world"}', "Square's documentation", url=url)
    body = json.dumps({"merchant_id": "M1", "type": "payment.updated", "event_id": "ac3ac95b", "created_at": "2026-11-30T09:15:00.25Z",
                       "data": {"type": "payment", "id": "pay_1", "object": {"payment": {"id": "pay_1"}}}})
    signature = encoded(mac(secret, url + body))
    assert verify_signature(request_body=body, signature_header=signature, signature_key=secret, notification_url=url)
    reads = {"id": "ac3ac95b", "type": "payment.updated", "timestamp": AT, "key": "pay_1"}
    headers = {"x-square-hmacsha256-signature": signature}
    yield vector("square", "square", secret, headers, body, "squareup 46.0.0 (PyPI)", url=url, **reads)


def slack():
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    body = ("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
            "&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
            "%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
            "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c")
    published = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    library = SignatureVerifier(secret)
    assert library.generate_signature(timestamp="1531420618", body=body) == published
    headers = {"X-Slack-Request-Timestamp": "1531420618", "X-Slack-Signature": published}
    yield vector("slack-published", "slack", secret, headers, body, "Slack's documentation")
    for name, event, reads in [
        ("slack", {"type": "event_callback", "event_id": "Ev1", "event_time": AT, "event": {"type": "message", "text": "hi"}},
         {"id": "Ev1", "type": "message", "timestamp": AT}),
        ("slack-challenge", {"type": "url_verification", "challenge": "3eZbrw1aBm2r"}, {"type": "url_verification"}),
    ]:
        body = json.dumps(event)
        signature = library.generate_signature(timestamp=str(AT), body=body)
        headers = {"X-Slack-Request-Timestamp": str(AT), "X-Slack-Signature": signature}
        yield vector(name, "slack", secret, headers, body, "slack_sdk 3.48.0 (PyPI)", **reads)


def main():
    vectors = [one for make in (standard_webhooks, stripe_, github, shopify, square, slack) for one in make()]
    text = json.dumps(vectors, indent=1, ensure_ascii=False) + "\n"
    if "--write" in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"the libraries sign otherwise than {FILE} says; tests/vectors/run --write renews it")
    print(f"{len(vectors)} vectors are those of the providers' libraries")


main()
