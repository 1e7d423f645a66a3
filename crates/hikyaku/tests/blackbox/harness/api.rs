//! A client of the program's API: an HTTP library that the program itself does not use.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use reqwest::{Client, Method, Url};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{eventually, signed};

/// The organization that every test works in.
const ORGANIZATION: &str = "acme";

/// An answer of the API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The content type.
    pub(crate) content_type: String,
    /// The body; an empty object where it is no JSON.
    pub(crate) json: Value,
}

impl Answer {
    /// Asserts that it is a problem document with this status, and gives its explanation.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.content_type, "application/problem+json", "{self:?}");
        assert_eq!(self.json["status"], status, "{self:?}");
        assert!(self.json["title"].as_str().is_some_and(|title| !title.is_empty()), "{self:?}");
        self.json["detail"].as_str().unwrap_or_else(|| panic!("no detail: {self:?}"))
    }

    /// Asserts the status and gives the body.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json
    }
}

/// A webhook as registered.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    /// Its id.
    pub(crate) id: String,
    /// The secret, which the API showed once.
    pub(crate) secret: String,
}

/// A client of one running program.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    base: Url,
}

impl Api {
    /// A client for the program at this address.
    pub(crate) fn new(addr: SocketAddr) -> Self {
        let client = Client::builder().no_proxy().build().unwrap();
        Self { client, base: Url::parse(&format!("http://{addr}/")).unwrap() }
    }

    /// A URL of these path segments, each of them escaped.
    pub(crate) fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().unwrap().clear().extend(segments);
        url
    }

    fn organization_url(&self, segments: &[&str]) -> Url {
        self.url(&[&["v1", "organizations", ORGANIZATION], segments].concat())
    }

    /// Any request; an error is a connection that broke.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        url: Url,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, url).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await?;
        let content_type = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (status, content_type) = (response.status().as_u16(), content_type.to_owned());
        let json = parse(&response.bytes().await?);
        Ok(Answer { status, content_type, json })
    }

    /// A request with a JSON body under this organization.
    pub(crate) async fn call(&self, method: Method, segments: &[&str], body: impl Into<Vec<u8>>) -> Answer {
        self.try_call(method, segments, body).await.unwrap()
    }

    /// As [`Self::call`]; an error is a connection that broke.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        segments: &[&str],
        body: impl Into<Vec<u8>>,
    ) -> reqwest::Result<Answer> {
        let json = [("content-type", "application/json")];
        self.try_send(method, self.organization_url(segments), &json, body.into()).await
    }

    /// Reads something under this organization.
    pub(crate) async fn get(&self, segments: &[&str], query: &[(&str, &str)]) -> Answer {
        let mut url = self.organization_url(segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.try_send(Method::GET, url, &[], Vec::new()).await.unwrap()
    }

    /// Registers a webhook for everything.
    pub(crate) async fn webhook(&self, url: &str) -> Webhook {
        self.webhook_with(json!({ "url": url })).await
    }

    /// Registers a webhook as described.
    pub(crate) async fn webhook_with(&self, description: Value) -> Webhook {
        let answer = self.call(Method::POST, &["webhooks"], description.to_string()).await.expect(201);
        let text = |name: &str| answer[name].as_str().unwrap_or_else(|| panic!("no {name}: {answer}")).to_owned();
        Webhook { id: text("id"), secret: text("secret") }
    }

    /// A webhook as it stands.
    pub(crate) async fn read_webhook(&self, webhook: &Webhook) -> Value {
        self.get(&["webhooks", &webhook.id], &[]).await.expect(200)
    }

    /// Changes a webhook.
    pub(crate) async fn patch(&self, webhook: &Webhook, change: Value) -> Value {
        self.call(Method::PATCH, &["webhooks", &webhook.id], change.to_string()).await.expect(200)
    }

    /// Deletes a webhook; gives the status.
    pub(crate) async fn delete(&self, webhook: &Webhook) -> u16 {
        self.call(Method::DELETE, &["webhooks", &webhook.id], "").await.status
    }

    /// Publishes the bytes as they are.
    pub(crate) async fn publish_raw(&self, body: impl Into<Vec<u8>>) -> Answer {
        self.try_publish(body).await.unwrap()
    }

    /// Publishes the bytes as they are; an error is a connection that broke.
    pub(crate) async fn try_publish(&self, body: impl Into<Vec<u8>>) -> reqwest::Result<Answer> {
        let json = [("content-type", "application/json")];
        self.try_send(Method::POST, self.organization_url(&["events"]), &json, body.into()).await
    }

    /// Publishes an event of this type and data, both as they are written; gives its id.
    pub(crate) async fn publish(&self, event_type: &str, data: &str) -> String {
        let answer = self.publish_raw(format!(r#"{{"type":"{event_type}","data":{data}}}"#)).await.expect(202);
        answer["id"].as_str().unwrap().to_owned()
    }

    /// Publishes several events, given as JSON objects, all or none.
    pub(crate) async fn publish_batch(&self, events: &[String]) -> Answer {
        self.try_publish_batch(events).await.unwrap()
    }

    /// As [`Self::publish_batch`]; an error is a connection that broke.
    pub(crate) async fn try_publish_batch(&self, events: &[String]) -> reqwest::Result<Answer> {
        let (json, body) = ([("content-type", "application/json")], format!(r#"{{"events":[{}]}}"#, events.join(",")));
        self.try_send(Method::POST, self.organization_url(&["events", "batch"]), &json, body.into()).await
    }

    /// All items of a list, page by page.
    pub(crate) async fn pages(&self, segments: &[&str]) -> Vec<Value> {
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let query: Vec<_> =
                [("limit", "200")].into_iter().chain(cursor.as_deref().map(|at| ("cursor", at))).collect();
            let page = self.get(segments, &query).await.expect(200);
            all.extend(items(&page));
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return all;
            }
        }
    }

    /// An event with its deliveries and attempts.
    pub(crate) async fn event(&self, id: &str) -> Value {
        self.get(&["events", id], &[]).await.expect(200)
    }

    /// The event, once none of its deliveries waits any more.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        eventually(&format!("the end of {id}"), async || {
            let event = self.event(id).await;
            let waiting = deliveries(&event).iter().any(|delivery| delivery["state"] == "waiting");
            (!waiting).then_some(event)
        })
        .await
    }

    /// The event's one delivery, once it has ended.
    pub(crate) async fn ended_one(&self, id: &str) -> Value {
        let event = self.ended(id).await;
        assert_eq!(deliveries(&event).len(), 1, "{event}");
        deliveries(&event)[0].clone()
    }

    /// A page of a webhook's log.
    pub(crate) async fn log(&self, webhook: &Webhook, query: &[(&str, &str)]) -> Value {
        self.get(&["webhooks", &webhook.id, "log"], query).await.expect(200)
    }

    /// Sends a delivery to `receiptroller` as the provider does; gives the status.
    pub(crate) async fn deliver_signed(&self, delivery: &str, body: impl AsRef<[u8]>) -> u16 {
        self.try_deliver_signed(delivery, body).await.unwrap()
    }

    /// As [`Self::deliver_signed`]; an error is a connection that broke.
    pub(crate) async fn try_deliver_signed(&self, delivery: &str, body: impl AsRef<[u8]>) -> reqwest::Result<u16> {
        let headers = signed(delivery, body.as_ref());
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.try_deliver("receiptroller", &headers, body.as_ref()).await
    }

    /// Sends a delivery to a source, with these headers; gives the status.
    pub(crate) async fn deliver(&self, source: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        self.try_deliver(source, headers, body).await.unwrap()
    }

    /// As [`Self::deliver`]; an error is a connection that broke.
    pub(crate) async fn try_deliver(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> reqwest::Result<u16> {
        let url = self.url(&["in", source]);
        Ok(self.try_send(Method::POST, url, headers, body.to_vec()).await?.status)
    }

    /// The inbox rows that a query finds.
    pub(crate) async fn inbox(&self, query: &[(&str, &str)]) -> Vec<Value> {
        items(&self.get(&["inbox"], query).await.expect(200))
    }

    /// One inbox row, or `None` where there is none.
    pub(crate) async fn inbox_row(&self, source: &str, delivery: &str) -> Option<Value> {
        let answer = self.get(&["inbox", source, delivery], &[]).await;
        (answer.status != 404).then(|| answer.expect(200))
    }

    /// The bytes of an inbox row as they came.
    pub(crate) async fn inbox_body(&self, source: &str, delivery: &str) -> Vec<u8> {
        let url = self.organization_url(&["inbox", source, delivery, "body"]);
        let response = self.client.get(url).send().await.unwrap();
        assert_eq!(response.status(), 200, "{delivery}");
        response.bytes().await.unwrap().to_vec()
    }

    /// The inbox row, once it waits no more.
    pub(crate) async fn settled(&self, source: &str, delivery: &str) -> Value {
        eventually(&format!("the end of row {delivery}"), async || {
            let row = self.inbox_row(source, delivery).await?;
            (row["state"] != "waiting").then_some(row)
        })
        .await
    }
}

/// Reads a body. Published data comes back as it was written, and some of it is more than a JSON value of this library
/// can hold; such a member is left out.
fn parse(body: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice(body) {
        return value;
    }
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).unwrap_or_default();
    let held = members.iter().filter_map(|(name, raw)| {
        let value: Value = serde_json::from_str(raw.get()).ok()?;
        Some((name.clone(), value))
    });
    Value::Object(held.collect())
}

/// The items of a page.
pub(crate) fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().unwrap_or_else(|| panic!("no items: {page}")).clone()
}

/// The deliveries of an event.
pub(crate) fn deliveries(event: &Value) -> &Vec<Value> {
    event["deliveries"].as_array().unwrap_or_else(|| panic!("no deliveries: {event}"))
}

/// The HTTP statuses of a delivery's attempts, in their order.
pub(crate) fn statuses(delivery: &Value) -> Vec<u64> {
    let attempts = delivery["attempts"].as_array().unwrap_or_else(|| panic!("no attempts: {delivery}"));
    attempts.iter().map(|attempt| attempt["httpStatus"].as_u64().unwrap()).collect()
}
