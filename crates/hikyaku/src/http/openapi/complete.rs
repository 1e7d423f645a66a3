//! What the description says of every request of a kind, so that no handler has to: the names in its path, the token
//! it needs, and the problems it may be answered with.

use hikyaku_core::ids::{MAX_ID_BYTES, MAX_ORGANIZATION_BYTES};
use utoipa::Modify;
use utoipa::openapi::content::{Content, ContentBuilder};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi, Ref, RefOr, Required, Response, ResponseBuilder, Schema};

use super::settings::lay_flat;

/// The name of the security scheme.
const TOKEN: &str = "token";

/// Adds what every request of a kind has in common.
pub(super) struct Whole;

impl Modify for Whole {
    fn modify(&self, api: &mut OpenApi) {
        let scheme = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(
            "A token of the organization, or an admin token; while no token exists, none is needed.",
        ));
        let components = api.components.get_or_insert_default();
        lay_flat(components);
        components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme.build()));
        for (path, item) in &mut api.paths.paths {
            operations(item).for_each(|operation| complete(path, operation));
        }
    }
}

fn complete(path: &str, operation: &mut Operation) {
    if let Some(summary) = &mut operation.summary {
        // The first sentence of a documentation, which is a title here.
        summary.truncate(summary.trim_end_matches('.').len());
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.values_mut().for_each(absent_for_null);
    }
    let parameters = operation.parameters.get_or_insert_default();
    parameters.splice(0..0, names(path).map(|name| parameter(name).into()));
    operation.security.get_or_insert_with(|| vec![SecurityRequirement::new(TOKEN, [""; 0])]);
    for (status, kinds) in problems(path, operation) {
        let response = || ResponseBuilder::new().description(format!("A problem: {kinds}.")).build().into();
        operation.responses.responses.entry(status.to_owned()).or_insert_with(response);
    }
    let failures = operation.responses.responses.iter_mut().filter(|(status, _)| status.as_str() >= "400");
    failures.for_each(|(_, response)| add_document(response));
}

/// All operations of a path.
fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}

/// The names in a path's braces, in their order.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
}

/// A name in a path, the same wherever it stands.
fn parameter(name: &str) -> Parameter {
    let (description, example, pattern) = match name {
        "organization" => ("The tenant whose things they are.", "default", r"^[A-Za-z0-9_.\-]+$"),
        "webhook" => ("A webhook's id.", "wh_01a22dd320787b799a1a1d8a9345b35b", "^[!-~]+$"),
        "event" => ("An event's id.", "sale-1", "^[!-~]+$"),
        "token" => ("A token's id.", "tok_01a22dd320787b799a1a1d8a9345b35b", "^[!-~]+$"),
        "recovery" => ("A recovery's id.", "rec_01a22dd320787b799a1a1d8a9345b35b", "^[!-~]+$"),
        "source" => ("A source of the configuration.", "receiptroller", "^.+$"),
        "reconcile" => ("A reconciliation of the configuration.", "sales", "^.+$"),
        "delivery" => ("The id of a received delivery.", "sale-1", "^.+$"),
        _ => ("", "", "^.+$"),
    };
    let longest = if name == "organization" { MAX_ORGANIZATION_BYTES } else { MAX_ID_BYTES };
    let schema = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).max_length(Some(longest));
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .example(Some(example.into()))
        .schema(Some(schema))
        .build()
}

/// The problems that a request may be answered with: by status, with the last parts of their types.
fn problems(path: &str, operation: &Operation) -> Vec<(&'static str, &'static str)> {
    let in_query =
        |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(it) if it.parameter_in == ParameterIn::Query);
    let has_query = operation.parameters.iter().flatten().any(in_query);
    let is_json =
        matches!(&operation.request_body, Some(RefOr::T(body)) if body.content.contains_key("application/json"));
    let needs_token = operation.security.as_ref().is_none_or(|needs| *needs != [SecurityRequirement::default()]);
    let has_body = operation.request_body.is_some();
    let mut problems = vec![("500", "internal, outcome-unknown")];
    match (is_json, has_body, has_query) {
        (true, ..) => problems.push(("400", "not-json, invalid-request, invalid-path, incomplete-body")),
        (_, true, _) => problems.push(("400", "invalid-path, incomplete-body")),
        (.., true) => problems.push(("400", "invalid-query, invalid-path")),
        _ if path.contains('{') => problems.push(("400", "invalid-path")),
        _ => {}
    }
    if needs_token {
        problems.extend([("401", "unauthorized"), ("503", "unavailable")]);
        problems.push(match path.contains("{organization}") {
            true => ("403", "foreign-origin"),
            false => ("403", "foreign-origin, forbidden"),
        });
    }
    if path.contains('{') {
        problems.push(("404", "not-found, no-such-path"));
    }
    if has_body {
        problems.extend([("408", "slow-body"), ("413", "too-large")]);
    }
    if is_json {
        problems.push(("415", "unsupported-media-type, unsupported-encoding"));
    }
    problems
}

/// A body that may be left out is no body that may be `null`, which is what utoipa makes of `Option`.
fn absent_for_null(content: &mut RefOr<Content>) {
    let RefOr::T(Content { schema, .. }) = content else { return };
    if let Some(RefOr::T(Schema::OneOf(choice))) = schema {
        *schema = choice.items.first().cloned();
    }
}

/// Every failure is answered with a problem document.
fn add_document(response: &mut RefOr<Response>) {
    let RefOr::T(response) = response else { return };
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    response.content.insert("application/problem+json".to_owned(), content.into());
}
