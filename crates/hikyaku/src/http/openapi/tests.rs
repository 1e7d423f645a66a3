//! The description against the code: nothing missing, nothing invented.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use hikyaku_core::event::MAX_EVENT_TYPE_BYTES;
use hikyaku_core::ids::{MAX_ID_BYTES, MAX_ORGANIZATION_BYTES};
use hikyaku_core::signature::{MAX_SECRET_BYTES, MIN_SECRET_BYTES};
use hikyaku_core::token::MAX_TOKEN_NAME_BYTES;
use hikyaku_core::webhook::{MAX_DESCRIPTION_BYTES, MAX_SECRET_OVERLAP, MAX_URL_BYTES};
use reqwest::Method;
use serde_json::{Value, json};

use super::DOCUMENT;
use crate::http::events::MAX_BATCH_EVENTS;
use crate::http::router::{
    admin_routes, caller_routes, docs_routes, health_routes, inbox_routes, metrics_routes, organization_routes,
};
use crate::http::tests::{Answer, Api};

/// Set to anything, it makes the snapshot test write the file.
const UPDATE: &str = "UPDATE_OPENAPI";

/// The methods that operations have.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// One operation of the description.
struct Operation {
    path: String,
    method: String,
    value: Value,
}

impl Operation {
    fn named(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), self.path)
    }

    /// A path that this operation is at.
    fn url(&self, webhook: &str) -> String {
        let filled = |part| match part {
            "{organization}" => "acme",
            "{webhook}" => webhook,
            part if str::starts_with(part, "{") => "shop",
            part => part,
        };
        self.path.split('/').map(filled).collect::<Vec<_>>().join("/")
    }

    async fn answer(&self, api: &Api, webhook: &str, query: &str, body: &'static str) -> Answer {
        let method = Method::from_bytes(self.method.to_uppercase().as_bytes()).unwrap();
        Answer::of(api.request(method, &format!("{}{query}", self.url(webhook))).body(body)).await
    }
}

fn description() -> Value {
    serde_json::from_str(&DOCUMENT).unwrap()
}

fn operations() -> Vec<Operation> {
    let whole = description();
    let mut operations = Vec::new();
    for (path, item) in whole["paths"].as_object().unwrap() {
        for method in METHODS.into_iter().filter(|method| !item[method].is_null()) {
            operations.push(Operation { path: path.clone(), method: method.to_owned(), value: item[method].clone() });
        }
    }
    operations
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let described: BTreeSet<_> = operations().into_iter().map(|operation| operation.path).collect();
    let routes = [
        docs_routes(),
        health_routes(),
        inbox_routes(),
        metrics_routes(),
        organization_routes(),
        admin_routes(),
        caller_routes(),
    ];
    let routes: BTreeSet<_> = routes.iter().flat_map(|some| &some.paths).map(|path| (*path).to_owned()).collect();
    assert_eq!(routes, described, "the routes, and what openapi/mod.rs lists");
}

#[tokio::test]
async fn every_method_of_a_route_is_described_and_no_other() {
    let api = Api::start().await;
    let mut described: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for operation in operations() {
        described.entry(operation.url("wh_1")).or_default().insert(operation.method.to_uppercase());
    }
    for (url, methods) in described {
        let answer = Answer::of(api.request(Method::OPTIONS, &url)).await;
        let allowed = answer.headers["allow"].to_str().unwrap().split(',').filter(|method| *method != "HEAD");
        assert_eq!(allowed.map(str::to_owned).collect::<BTreeSet<_>>(), methods, "{url}");
    }
}

/// A handler that refuses a field or parameter says which it knows: those must be the described ones.
#[tokio::test]
async fn every_field_and_parameter_that_is_read_is_described_and_no_other() {
    let api = Api::start().await;
    let mut compared = 0;
    for operation in operations() {
        let webhook = api.webhook().await;
        let parameters = operation.value["parameters"].as_array().unwrap();
        let mut query: Vec<_> = parameters.iter().filter(|it| it["in"] == "query").map(|it| &it["name"]).collect();
        if operation.method == "get"
            && let Some(known) = known(&operation.answer(&api, &webhook, "?nonsense=1", "").await, "invalid-query")
        {
            query.sort_by_key(|name| name.to_string());
            assert_eq!(json!(query), json!(known), "parameters of {}", operation.named());
            compared += 1;
        } else {
            assert!(query.is_empty(), "{} has parameters and takes any", operation.named());
        }
        let body = &operation.value["requestBody"]["content"]["application/json"]["schema"];
        if body.is_null() {
            continue;
        }
        let answer = operation.answer(&api, &webhook, "", r#"{"nonsense":1}"#).await;
        let known = known(&answer, "invalid-request").unwrap_or_else(|| panic!("{}: {answer:?}", operation.named()));
        assert_eq!(names(&resolve(body)), known, "fields of {}", operation.named());
        assert_eq!(resolve(body)["additionalProperties"], false, "{}", operation.named());
        compared += 1;
    }
    assert!(compared > 5, "only {compared} are compared, so the answers are no longer read as they should be");
}

/// The names that a problem of this type says are known, sorted.
fn known(answer: &Answer, kind: &str) -> Option<Vec<String>> {
    if answer.status != 400 || answer.json()["type"] != format!("/problems/{kind}") {
        return None;
    }
    let detail = answer.json()["errors"][0]["detail"].as_str()?.to_owned();
    let list = detail.strip_prefix("is not known here; ")?;
    if list == "no field is" {
        return Some(Vec::new());
    }
    let list = list.strip_prefix("known are ")?;
    let mut names: Vec<_> = list.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    names.sort();
    Some(names)
}

fn resolve(schema: &Value) -> Value {
    let name = schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
    description()["components"]["schemas"][name].clone()
}

fn names(schema: &Value) -> Vec<String> {
    schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect()
}

#[test]
fn every_part_says_what_it_is() {
    let mut complaints = Vec::new();
    let mut ids = BTreeSet::new();
    for operation in operations() {
        let (named, value) = (operation.named(), &operation.value);
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        if !ids.insert(value["operationId"].to_string()) {
            complaints.push(format!("{named}: its operationId is taken"));
        }
        if !is_text(&value["summary"]) {
            complaints.push(format!("{named}: its documentation does not begin with a sentence of its own"));
        }
        let is_named = |it: &&Value| is_text(&it["description"]) || is_text(&it["schema"]["description"]);
        for parameter in value["parameters"].as_array().unwrap().iter().filter(|it| !is_named(it)) {
            complaints.push(format!("{named}: {} is not described; see complete.rs", parameter["name"]));
        }
        let responses = value["responses"].as_object().unwrap();
        for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
            if response["content"]["application/problem+json"].is_null() {
                complaints.push(format!("{named}: {status} is no problem document"));
            }
        }
    }
    for (name, property) in properties() {
        if name.rsplit('.').next().is_some_and(|field| field.contains(['_', '-'])) {
            complaints.push(format!("{name} is not camelCase"));
        }
        // Where it may be null, the documentation stands beside its shape.
        if property["description"].is_null() && property["oneOf"][0]["description"].is_null() {
            complaints.push(format!("{name} has no documentation"));
        }
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// All fields of all shapes, as `Webhook.url`.
fn properties() -> BTreeMap<String, Value> {
    let whole = description();
    let mut found = BTreeMap::new();
    for (name, schema) in whole["components"]["schemas"].as_object().unwrap() {
        let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
        for part in parts.iter().filter_map(|part| part["properties"].as_object()) {
            found.extend(part.iter().map(|(field, property)| (format!("{name}.{field}"), property.clone())));
        }
    }
    found
}

#[test]
fn the_described_bounds_are_those_of_the_code() {
    let properties = properties();
    for (field, bound, value) in [
        ("NewWebhook.url", "maxLength", MAX_URL_BYTES),
        ("NewWebhook.description", "maxLength", MAX_DESCRIPTION_BYTES),
        ("NewWebhook.secret", "minLength", MIN_SECRET_BYTES),
        ("NewWebhook.secret", "maxLength", MAX_SECRET_BYTES),
        ("WebhookChange.url", "maxLength", MAX_URL_BYTES),
        ("WebhookChange.description", "maxLength", MAX_DESCRIPTION_BYTES),
        ("NewSecret.secret", "minLength", MIN_SECRET_BYTES),
        ("NewSecret.secret", "maxLength", MAX_SECRET_BYTES),
        ("NewSecret.overlap", "maximum", MAX_SECRET_OVERLAP.as_secs() as usize),
        ("NewToken.name", "maxLength", MAX_TOKEN_NAME_BYTES),
        ("NewAnyToken.name", "maxLength", MAX_TOKEN_NAME_BYTES),
        ("NewAnyToken.organization", "maxLength", MAX_ORGANIZATION_BYTES),
        ("NewEvent.type", "maxLength", MAX_EVENT_TYPE_BYTES),
        ("NewEvent.id", "maxLength", MAX_ID_BYTES),
        ("Batch.events", "maxItems", MAX_BATCH_EVENTS),
    ] {
        assert_eq!(properties[field][bound], value, "{bound} of {field}");
    }
}

#[test]
fn the_committed_description_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, DOCUMENT.as_str()).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == *DOCUMENT,
        "docs/openapi.json is not what the code describes. If the change is meant, run \
         `{UPDATE}=1 cargo test -p hikyaku openapi` and look at the difference."
    );
}
