//! `/v1/organizations/{organization}/sources`: where deliveries come from, and whether their signatures verify (T2).

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::openapi::words;
use super::problem::Problem;
use super::request::InPath;
use super::view::Items;
use crate::inbox::{OnBadSignature, Source, SourceState};
use crate::store::InboxQuery;

/// List sources.
///
/// How the signatures of each stand since the program's start, when its last delivery was stored, and when its provider will switch the webhook off if nothing changes.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/sources",
    operation_id = "listSources",
    tag = "inbox",
    responses((status = 200, description = "The sources, by name.", body = Items<SourceItem>)),
)]
pub(super) async fn list(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<Items<SourceItem>>, Problem> {
    let organization = path.organization()?;
    let mut items = Vec::new();
    for (source, stands) in state.inbox.sources(&organization) {
        let newest =
            InboxQuery { source: Some(source.name.clone()), look_at: 1, ..InboxQuery::newest(organization.clone(), 1) };
        let last_row_at = state.store.inbox(newest).await?.rows.first().map(|row| row.received_at);
        items.push(SourceItem::of(source, &stands, last_row_at));
    }
    Ok(Json(Items { items }))
}

/// A source of the configuration.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Source)]
pub(super) struct SourceItem {
    /// Its name: deliveries come in at `/in/{name}`.
    name: String,
    /// Whose webhooks these are.
    provider: String,
    #[schema(schema_with = words::on_bad_signature)]
    on_bad_signature: &'static str,
    /// When a signature verified last; `null` before the first.
    #[schema(required, format = DateTime)]
    last_good_at: Option<String>,
    /// When the newest delivery that is stored came in, since whichever start; `null` where there is none.
    #[schema(required, format = DateTime)]
    last_row_at: Option<String>,
    /// When one did not verify last; `null` before the first.
    #[schema(required, format = DateTime)]
    last_refused_at: Option<String>,
    /// Why that one did not.
    #[schema(required)]
    last_refused_because: Option<String>,
    /// Since when none has verified, while some came; `null` while all is well.
    #[schema(required, format = DateTime)]
    refused_since: Option<String>,
    /// When the provider switches its webhook off if nothing changes, or has done so; `null` while all is well, and where
    /// it is not known how the provider goes about it.
    #[schema(required, format = DateTime)]
    switched_off_at: Option<String>,
}

impl SourceItem {
    fn of(source: &Source, state: &SourceState, last_row_at: Option<Timestamp>) -> Self {
        let SourceState { last_good_at, last_refused, refused_since, switched_off_at } = state;
        Self {
            name: source.name.clone(),
            provider: source.provider.clone(),
            on_bad_signature: match source.on_bad_signature {
                OnBadSignature::Refuse => "refuse",
                OnBadSignature::Quarantine(_) => "quarantine",
            },
            last_good_at: last_good_at.map(timestamp::format),
            last_row_at: last_row_at.map(timestamp::format),
            last_refused_at: last_refused.as_ref().map(|(at, _)| timestamp::format(*at)),
            last_refused_because: last_refused.as_ref().map(|(_, reason)| reason.to_string()),
            refused_since: refused_since.map(timestamp::format),
            switched_off_at: switched_off_at.map(timestamp::format),
        }
    }
}
