//! `hikyaku token`: API tokens, in the store itself while no server runs on it, else through that server.

use std::fmt::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use hikyaku::client::{Client, segment};
use hikyaku::clock::{self, Clock, SystemClock};
use hikyaku::config::{Config, StoreLocation};
use hikyaku::log;
use hikyaku::store::postgres::{self, PostgresStore};
use hikyaku::store::sqlite::{OpenError, SqliteStore};
use hikyaku::store::{SharedStore, TokenQuery};
use hikyaku_core::ids::{OrganizationId, TokenId};
use hikyaku_core::timestamp;
use hikyaku_core::token::{ApiToken, Scope, check_token_name};
use hyper::Method;
use serde_json::{Value, json};

use super::failure::{Failure, failed};
use super::server::{self, Server};
use super::{in_runtime, with_config};

/// Connections to a database: one to ask over, and one in case it breaks.
const CONNECTIONS: usize = 2;
/// Tokens that are asked for at a time.
const PAGE_TOKENS: u32 = 200;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token and print it, this once, to standard output
    Create {
        #[command(flatten)]
        scope: ScopeArgument,
        /// Whose it is, or what it is for
        #[arg(long, value_parser = name, default_value = "", hide_default_value = true)]
        name: String,
        #[command(flatten)]
        server: Server,
    },
    /// List tokens, newest first; none of them can be shown again
    List {
        /// Only those of this organization
        #[arg(long, value_name = "ORG", value_parser = organization)]
        organization: Option<OrganizationId>,
        #[command(flatten)]
        server: Server,
    },
    /// Make a token open nothing any more, at once
    Revoke {
        /// The token's id, as the list shows it
        id: String,
        /// Its organization; needed where the token that is presented is an organization's
        #[arg(long, value_name = "ORG", value_parser = organization)]
        organization: Option<OrganizationId>,
        #[command(flatten)]
        server: Server,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ScopeArgument {
    /// It opens this organization
    #[arg(long, value_name = "ORG", value_parser = organization)]
    organization: Option<OrganizationId>,
    /// It opens everything
    #[arg(long)]
    admin: bool,
}

pub(super) fn organization(text: &str) -> Result<OrganizationId, String> {
    OrganizationId::parse(text).map_err(|error| format!("it {error}"))
}

fn name(text: &str) -> Result<String, String> {
    check_token_name(text.to_owned()).map_err(|error| format!("it {error}"))
}

/// What is to be done.
enum Action {
    Create(Scope, String),
    List(Option<OrganizationId>),
    Revoke(Option<OrganizationId>, String),
}

/// Where the tokens are reached.
enum Place {
    /// In this store, which lies there.
    Store(SharedStore, String),
    Server(Client),
}

impl TokenCommand {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        let (action, server) = match self {
            Self::Create { scope, name, server } => {
                (Action::Create(scope.organization.map_or(Scope::Admin, Scope::Organization), name), server)
            }
            Self::List { organization, server } => (Action::List(organization), server),
            Self::Revoke { id, organization, server } => (Action::Revoke(organization, id), server),
        };
        let makes = matches!(action, Action::Create(..));
        let Server { server, token, settings } = server;
        match server {
            Some(url) => in_runtime(async {
                let place = server::named(&url, token.as_deref()).map(Place::Server).map_err(Failure::from);
                action.end_in(place).await
            }),
            None => with_config(settings, |config| {
                in_runtime(async { action.end_in(place(&config, token.as_deref(), makes).await).await })
            }),
        }
    }
}

/// The store if this process may open it, else the server that has its file open. Only to make a token, a file is made.
async fn place(config: &Config, token: Option<&str>, makes: bool) -> Result<Place, Failure> {
    match &config.store {
        StoreLocation::Sqlite(path) => {
            if !makes && !path.exists() {
                return Err(format!(
                    "there is no store at {}; name it with --store, or a running server with --server",
                    path.display()
                )
                .into());
            }
            match SqliteStore::open(path, config.seal.clone(), &SystemClock::start()) {
                Ok(store) => return Ok(Place::Store(Arc::new(store), path.display().to_string())),
                Err(OpenError::InUse { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        StoreLocation::Postgres(database) => {
            let options = postgres::Options { migrate: database.migrate, connections: CONNECTIONS, notify: false };
            let (url, seal) = (database.url.reveal(), config.seal.clone());
            let store = PostgresStore::open(url, seal, &SystemClock::start(), options).await?;
            return Ok(Place::Store(Arc::new(store), "the database".to_owned()));
        }
        StoreLocation::Memory => {}
    }
    Ok(Place::Server(server::configured(config, token)?))
}

impl Action {
    async fn end_in(self, place: Result<Place, Failure>) -> ExitCode {
        let done = match place {
            Ok(place) => {
                let done = self.take(&place).await;
                place.leave().await;
                done
            }
            Err(failure) => Err(failure),
        };
        done.map_or_else(|failure| failed(&*failure), |()| ExitCode::SUCCESS)
    }

    async fn take(self, place: &Place) -> Result<(), Failure> {
        match self {
            Self::Create(scope, name) => {
                let (row, token) = place.create(scope, name).await?;
                let Row { id, opens, .. } = row;
                // First, so that its id is known even if the token cannot be printed.
                log::tell(format_args!(
                    "This is the only time the token is shown. It opens {opens}; its id is {id}, kept in {place}.\n"
                ));
                log::print(format_args!("{token}\n"))?;
            }
            Self::List(organization) => {
                log::print(format_args!("{}", table(&place.list(organization.as_ref()).await?)))?;
            }
            Self::Revoke(organization, id) => {
                place.revoke(organization.as_ref(), &id).await?;
                log::tell(format_args!("{id} opens nothing any more.\n"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(_, path) => f.write_str(path),
            Self::Server(client) => f.write_str(client.server()),
        }
    }
}

impl Place {
    /// What was done is stored; a store that cannot be tidied up now is at the next start.
    async fn leave(&self) {
        if let Self::Store(store, _) = self {
            let _ = store.close().await;
        }
    }

    async fn create(&self, scope: Scope, name: String) -> Result<(Row, String), Failure> {
        match self {
            Self::Store(store, _) => {
                let now = SystemClock::start().now();
                let (kept, token) = ApiToken::issue(scope, name, now, clock::random(), clock::random());
                store.create_token(kept.clone()).await?;
                Ok((Row::of_token(&kept), token.reveal().to_owned()))
            }
            Self::Server(client) => {
                let body = match scope {
                    Scope::Admin => json!({"admin": true, "name": name}),
                    Scope::Organization(_) => json!({"name": name}),
                };
                let made = client.call(Method::POST, &path(scope.organization()), Some(&body)).await?.json;
                let token = made["token"].as_str().ok_or("the server made a token and did not show it")?;
                Ok((Row::of_json(&made), token.to_owned()))
            }
        }
    }

    async fn list(&self, organization: Option<&OrganizationId>) -> Result<Vec<Row>, Failure> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let (page, more) = self.page(organization, rows.last().map(|row| row.id.as_str())).await?;
            rows.extend(page);
            if !more {
                return Ok(rows);
            }
        }
    }

    /// The tokens after the one with the id `after`, and whether there are more.
    async fn page(
        &self,
        organization: Option<&OrganizationId>,
        after: Option<&str>,
    ) -> Result<(Vec<Row>, bool), Failure> {
        match self {
            Self::Store(store, _) => {
                let before = after.map(TokenId::parse).transpose()?;
                let query = TokenQuery { organization: organization.cloned(), before, limit: PAGE_TOKENS };
                let page: Vec<_> = store.tokens(query).await?.iter().map(Row::of_token).collect();
                let more = !page.is_empty();
                Ok((page, more))
            }
            Self::Server(client) => {
                let cursor = after.map(|id| format!("&cursor={}", segment(id))).unwrap_or_default();
                let path = format!("{}?limit={PAGE_TOKENS}{cursor}", path(organization));
                let page = client.call(Method::GET, &path, None).await?.json;
                let items = page["items"].as_array().ok_or("the server's answer is no list")?;
                Ok((items.iter().map(Row::of_json).collect(), page["nextCursor"].is_string() && !items.is_empty()))
            }
        }
    }

    async fn revoke(&self, organization: Option<&OrganizationId>, id: &str) -> Result<(), Failure> {
        match self {
            Self::Store(store, _) => {
                let revoked = match TokenId::parse(id) {
                    Ok(id) => store.revoke_token(organization, &id, SystemClock::start().now()).await?,
                    Err(_) => false,
                };
                if revoked { Ok(()) } else { Err(format!("there is no token {id:?}").into()) }
            }
            Self::Server(client) => {
                client.call(Method::DELETE, &format!("{}/{}", path(organization), segment(id)), None).await?;
                Ok(())
            }
        }
    }
}

fn path(organization: Option<&OrganizationId>) -> String {
    match organization {
        None => "/v1/tokens".to_owned(),
        Some(organization) => format!("/v1/organizations/{organization}/tokens"),
    }
}

/// A token as it is listed.
struct Row {
    id: String,
    created_at: String,
    revoked_at: String,
    opens: String,
    name: String,
}

impl Row {
    fn of_token(token: &ApiToken) -> Self {
        Self {
            id: token.id.to_string(),
            created_at: timestamp::format(token.created_at),
            revoked_at: token.revoked_at.map(timestamp::format).unwrap_or_default(),
            opens: token.scope.organization().map_or("everything".to_owned(), OrganizationId::to_string),
            name: token.name.clone(),
        }
    }

    fn of_json(token: &Value) -> Self {
        let text = |name: &str| token[name].as_str().unwrap_or_default().to_owned();
        let opens = if token["admin"] == json!(true) { "everything".to_owned() } else { text("organization") };
        Self { id: text("id"), created_at: text("createdAt"), revoked_at: text("revokedAt"), opens, name: text("name") }
    }
}

fn table(rows: &[Row]) -> String {
    let opens = rows.iter().map(|row| row.opens.len()).max().unwrap_or(0).max("OPENS".len());
    let mut table = format!("{:36}  {:24}  {:24}  {:opens$}  NAME\n", "ID", "CREATED", "REVOKED", "OPENS");
    for Row { id, created_at, revoked_at, opens: scope, name } in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "{id:36}  {created_at:24}  {revoked_at:24}  {scope:opens$}  {name}");
    }
    table
}
