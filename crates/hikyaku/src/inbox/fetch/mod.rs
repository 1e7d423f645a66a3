//! Reading the present state of a business key from the provider's API, for routes whose order is `fetch` (C3).

mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::json;
use url::Url;

use super::Source;
use crate::clock::SharedClock;
use crate::outbound::{Exchange, Response};
use crate::provider_api::{Call, Credential, Failure, ProviderApi};
use crate::store::WorkRow;
pub use template::UrlTemplate;

/// How a source's provider is asked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where a key's state stands. The operator chose it, so no address is refused but those of S7.
    pub url: UrlTemplate,
    /// What opens it; `None` asks without.
    pub credential: Option<Credential>,
    /// How long one reading may take, a login included.
    pub timeout: Duration,
    /// Largest state that is taken, in bytes.
    pub max_body_bytes: usize,
}

impl Settings {
    /// How long a reading may take unless something else is said.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
    /// Largest state that is taken unless something else is said, in bytes.
    pub const DEFAULT_MAX_BODY_BYTES: usize = 1024 * 1024;
}

/// What a reading brought.
#[derive(Debug)]
pub(super) enum Fetched {
    /// The present state: a JSON object.
    State(Bytes),
    /// The provider does not have it.
    Gone(String),
    /// Nothing, and a later reading may bring more.
    Failed {
        /// What went wrong, for people.
        error: String,
        /// Not before this long has passed, where the provider says so.
        retry_after: Option<Duration>,
    },
    /// It cannot be asked for.
    Unaskable(String),
}

/// Reads states for one source.
pub struct Fetcher {
    url: UrlTemplate,
    organization: OrganizationId,
    api: ProviderApi,
}

impl Fetcher {
    /// A fetcher for a source, if its provider can be asked. `exchange` refuses no address that an operator may have
    /// chosen, but those of S7.
    pub fn of(source: &Source, exchange: Arc<dyn Exchange>, clock: SharedClock) -> Option<Self> {
        let Settings { url, credential, timeout, max_body_bytes } = source.fetch.clone()?;
        let api = ProviderApi::new(credential, timeout, max_body_bytes, exchange, clock);
        Some(Self { url, organization: source.organization.clone(), api })
    }

    /// Where a row's state would be read.
    pub(super) fn url(&self, row: &WorkRow) -> Result<Url, String> {
        self.url.fill(&self.organization, row)
    }

    /// Reads the state that a row is about, as it is now. Comes back within the setting's timeout.
    pub(super) async fn fetch(&self, row: &WorkRow) -> Fetched {
        let url = match self.url(row) {
            Ok(url) => url,
            Err(reason) => return Fetched::Unaskable(reason),
        };
        match self.api.call(&Call::get(url)).await {
            Ok(response) => self.judge(response),
            Err(Failure { error, retry_after }) => Fetched::Failed { error, retry_after },
        }
    }

    fn judge(&self, response: Response) -> Fetched {
        match response.outcome.http_status() {
            200..=299 => match json::pointer(&response.body, "") {
                Some(state) if state.get().starts_with('{') => Fetched::State(response.body),
                _ => Fetched::Failed {
                    error: "the provider's API answered with something that is no JSON object".to_owned(),
                    retry_after: None,
                },
            },
            status @ (404 | 410) => {
                Fetched::Gone(format!("the provider's API does not have it (it answered {status})"))
            }
            status => Fetched::Failed {
                error: format!("the provider's API answered {status}"),
                retry_after: self.api.retry_after(status, &response),
            },
        }
    }
}
