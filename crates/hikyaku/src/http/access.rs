//! Who may call: API tokens, what they open, and what holds while there are none (S13, S16-S18).
//!
//! Without any token the API is open to this machine, for development; the program refuses to listen further. From the
//! first token on everyone needs one, for as long as the process lives.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State as Shared};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use hikyaku_core::signature::Secret;
use hikyaku_core::token::{Scope, TokenHash};
use jiff::Timestamp;
use ring::hmac;
use tokio::time::timeout;

use super::State;
use super::origin;
use super::problem::{Kind, Problem};
use super::request::InPath;
use crate::clock::SharedClock;
use crate::store::{SharedStore, StoreError};

/// How long an answer of the store about a token holds: so long may a token that another process has revoked still
/// open something here. Where the revocation is made, it holds at once.
pub const MAX_TOKEN_AGE: Duration = Duration::from_secs(1);
/// How long it holds that there is no token: so long may be open here what another process has closed by making the
/// first one.
const MAX_OPEN_AGE: Duration = Duration::from_millis(500);
/// Most answers that are kept, those about tokens that do not exist included; when there are more, all are forgotten.
pub(super) const MAX_KEPT_ANSWERS: usize = 10_000;
/// How long the store may take to answer about a token.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Knows who may call.
pub struct Access {
    configured: Option<Configured>,
    required: AtomicBool,
    /// When the store was last asked whether there is a token, in milliseconds of the schedule clock; while there is none.
    asked_at: AtomicI64,
    store: SharedStore,
    clock: SharedClock,
    answers: Mutex<Answers>,
}

/// What the store said about tokens.
#[derive(Default)]
struct Answers {
    by_hash: HashMap<TokenHash, (Timestamp, Option<Scope>)>,
    /// Counts revocations, so that an answer from before one is not kept after it.
    revocations: u64,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Access {
    /// Begins with the token of the configuration, which opens everything, and looks whether the store has any.
    ///
    /// # Errors
    /// The store did not say: nobody could be let in, or kept out.
    pub async fn start(token: Option<Secret>, store: SharedStore, clock: SharedClock) -> Result<Self, StoreError> {
        let required = token.is_some() || store.any_valid_token().await?;
        let configured = token.map(|token| Configured::new(&token));
        let (required, asked_at) = (AtomicBool::new(required), AtomicI64::new(clock.schedule().as_millisecond()));
        Ok(Self { configured, required, asked_at, store, clock, answers: Mutex::default() })
    }

    /// Whether callers need no token, because there is none.
    pub fn is_open(&self) -> bool {
        !self.required.load(Ordering::Acquire)
    }

    /// To be told of a token that was made, before anybody is told what it is: from now on everyone needs one.
    pub(super) fn token_made(&self) {
        if !self.required.swap(true, Ordering::AcqRel) {
            tracing::info!("the first API token is made; from now on every caller needs one");
        }
    }

    /// Looks whether another process has made the first token, if nobody has looked for a while.
    async fn look_for_the_first(&self) {
        let now = self.clock.schedule().as_millisecond();
        let asked_at = self.asked_at.load(Ordering::Acquire);
        let is_due = now.abs_diff(asked_at) >= MAX_OPEN_AGE.as_millis() as u64;
        // One of those who come now asks.
        if !is_due || self.asked_at.compare_exchange(asked_at, now, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        match timeout(STORE_TIMEOUT, self.store.any_valid_token()).await {
            Ok(Ok(true)) => self.token_made(),
            Ok(Ok(false)) => {}
            // A store that does not answer takes no token from anybody either.
            failed => tracing::debug!(?failed, "the store does not say whether there is an API token"),
        }
    }

    /// To be told of a token that was revoked, before anybody is told that it is: it opens nothing here any more.
    pub(super) fn token_revoked(&self) {
        let mut answers = self.answers();
        answers.by_hash.clear();
        answers.revocations += 1;
    }

    /// What this caller may reach.
    pub(super) async fn scope(&self, method: &Method, headers: &HeaderMap) -> Result<Scope, Problem> {
        if self.is_open() {
            self.look_for_the_first().await;
        }
        if self.is_open() {
            return origin::check(method, headers).map(|()| Scope::Admin);
        }
        let presented = bearer(headers).ok_or_else(unauthorized)?;
        if self.configured.as_ref().is_some_and(|configured| configured.is(presented)) {
            return Ok(Scope::Admin);
        }
        let hash = TokenHash::of(presented).ok_or_else(unauthorized)?;
        self.look_up(&hash).await?.ok_or_else(unauthorized)
    }

    /// What the store has said within [`MAX_TOKEN_AGE`], or says now. If it says nothing, nobody knows whether the caller
    /// may, and the problem is ours and not theirs (S18).
    async fn look_up(&self, hash: &TokenHash) -> Result<Option<Scope>, Problem> {
        let asked_at = self.clock.schedule();
        let revocations = {
            let answers = self.answers();
            if let Some((at, scope)) = answers.by_hash.get(hash)
                && asked_at.duration_since(*at).unsigned_abs() < MAX_TOKEN_AGE
            {
                return Ok(scope.clone());
            }
            answers.revocations
        };
        let answer = timeout(STORE_TIMEOUT, self.store.valid_token(hash)).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::Unavailable("no answer about a token in time".into())));
        let scope = answer.map_err(not_known)?.map(|token| token.scope);
        let mut answers = self.answers();
        if answers.revocations == revocations {
            if answers.by_hash.len() >= MAX_KEPT_ANSWERS {
                answers.by_hash.clear();
            }
            answers.by_hash.insert(*hash, (asked_at, scope.clone()));
        }
        Ok(scope)
    }

    #[cfg(test)]
    pub(super) fn kept_answers(&self) -> usize {
        self.answers().by_hash.len()
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        // What is kept is whole whenever the lock is free.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The token of the configuration. It is known without comparing it byte by byte: two MACs are compared, in constant
/// time and at a fixed length (S13).
struct Configured {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Configured {
    fn new(token: &Secret) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.reveal().as_bytes());
        let tag = hmac::sign(&key, token.reveal().as_bytes());
        Self { key, tag }
    }

    fn is(&self, presented: &[u8]) -> bool {
        hmac::verify(&self.key, presented, self.tag.as_ref()).is_ok()
    }
}

/// What the one `Authorization` header presents.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

fn unauthorized() -> Problem {
    let detail = "Send \"authorization: Bearer TOKEN\" with a valid token: one that \"hikyaku token create\" made, or \
                  the server's api.token.";
    Problem::new(Kind::Unauthorized, detail)
}

fn not_known(error: StoreError) -> Problem {
    match error {
        // It comes with every request of an overload.
        StoreError::Unavailable(_) => {
            tracing::warn!(%error, "a request was refused: the store does not answer about tokens")
        }
        _ => tracing::error!(%error, "a request was refused: the store fails to look up tokens"),
    }
    Problem::new(Kind::Unavailable, "The store does not say now whether the token is valid. Send the request again.")
}

/// Lets through who may reach the organization in the path. To another's token it does not exist (S17).
pub(super) async fn to_organization(
    Shared(state): Shared<Arc<State>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let scope = state.access.scope(request.method(), request.headers()).await?;
    let (mut head, body) = request.into_parts();
    if let Scope::Organization(own) = &scope {
        let path = InPath::from_request_parts(&mut head, &state).await?;
        let asked = path.text("organization");
        if asked != own.as_str() {
            let detail = format!("There is no organization {asked:?} for this token.");
            return Err(Problem::new(Kind::NotFound, detail));
        }
    }
    Ok(next.run(Request::from_parts(head, body)).await)
}

/// Lets through who may reach everything.
pub(super) async fn to_everything(
    Shared(state): Shared<Arc<State>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    match state.access.scope(request.method(), request.headers()).await? {
        Scope::Admin => Ok(next.run(request).await),
        Scope::Organization(own) => {
            let detail = format!("This takes an admin token; this one opens {:?} only.", own.as_str());
            Err(Problem::new(Kind::Forbidden, detail))
        }
    }
}
