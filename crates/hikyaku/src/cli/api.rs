//! The API of a running server, as the commands call it and show its answers.

use std::fmt::Display;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use hikyaku::client::{Client, segment};
use hikyaku_core::ids::OrganizationId;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::failure::{Failure, WrongUse, failed};
use super::in_runtime;
use super::output;
use super::table::{Column, Members, Table, print_members};
use super::token::organization;

/// Most rows that the server gives at a time.
pub(super) const MAX_PAGE_ROWS: u64 = 200;

/// Which server a command talks to, for whom, and how it shows the answers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server and output")]
pub(super) struct Target {
    /// The running server
    #[arg(long, global = true, value_name = "URL", env = "HIKYAKU_SERVER", default_value = "http://127.0.0.1:8080")]
    server: String,
    /// The API token to present; better given as the variable, which other users cannot see
    #[arg(long, global = true, value_name = "TOKEN", env = "HIKYAKU_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Whose webhooks, events and rows
    #[arg(long, global = true, value_name = "ORG", env = "HIKYAKU_ORGANIZATION", default_value = "default",
          value_parser = organization)]
    organization: OrganizationId,
    /// Print the server's JSON as it is; of lists that have pages, one row per line
    #[arg(long, global = true)]
    json: bool,
}

impl Target {
    /// Whether what is shown is for programs.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Does something with the server, and says what failed if it fails.
    pub(super) fn run(self, act: impl AsyncFnOnce(&Api) -> Result<(), Failure>) -> ExitCode {
        let api = match Client::new(&self.server, self.token.as_deref()) {
            Ok(client) => Api { client, organization: Some(self.organization), json: self.json },
            Err(error) => return failed(&error),
        };
        in_runtime(async { act(&api).await.map_or_else(|failure| failed(&*failure), |()| ExitCode::SUCCESS) })
    }
}

/// How much of a list is wanted.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Paging {
    /// How many rows at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// All rows
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A query string that grows.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(String);

impl Query {
    /// The same with one more parameter, if it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { '?' } else { '&' };
            self.0.push_str(&format!("{mark}{name}={}", segment(&value.to_string())));
        }
        self
    }
}

/// One page of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    /// Its rows, to the byte.
    pub(super) items: Vec<Box<RawValue>>,
    /// Where the next page begins.
    pub(super) next_cursor: Option<String>,
}

impl Page {
    /// Its rows, to be shown.
    pub(super) fn rows(&self) -> Vec<Value> {
        self.items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect()
    }
}

/// An answer's body.
pub(super) struct Document(Bytes);

impl Document {
    /// What it says.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.0)
            .map_err(|error| format!("the server's answer is not what this command knows: {error}").into())
    }

    /// Prints it as it is, as one document.
    pub(super) fn print(&self) {
        if !self.0.is_empty() {
            output::print(format_args!("{}\n", String::from_utf8_lossy(&self.0)));
        }
    }
}

/// A server, and an organization on it.
pub(super) struct Api {
    client: Client,
    /// `None`: what belongs to no organization.
    organization: Option<OrganizationId>,
    json: bool,
}

impl Api {
    /// The same for what belongs to no organization.
    pub(super) fn of_everything(&self) -> Self {
        Self { client: self.client.clone(), organization: None, json: self.json }
    }

    /// Whether answers are printed as they are.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Reads something of the organization.
    pub(super) async fn get(&self, path: &[&str], query: &Query) -> Result<Document, Failure> {
        self.call(Method::GET, path, query, None).await.map(|(_, document)| document)
    }

    /// Changes something of the organization.
    pub(super) async fn send(&self, method: Method, path: &[&str], body: Option<String>) -> Result<Document, Failure> {
        self.call(method, path, &Query::default(), body).await.map(|(_, document)| document)
    }

    /// As [`Self::send`], with POST; gives the status too.
    pub(super) async fn post(&self, path: &[&str], body: String) -> Result<(u16, Document), Failure> {
        self.call(Method::POST, path, &Query::default(), Some(body)).await
    }

    async fn call(
        &self,
        method: Method,
        path: &[&str],
        Query(query): &Query,
        body: Option<String>,
    ) -> Result<(u16, Document), Failure> {
        // It would name the whole list.
        if path.contains(&"") {
            return Err(WrongUse("an id is empty".to_owned()).into());
        }
        let of_organization = |organization| format!("/v1/organizations/{organization}");
        let mut url = self.organization.as_ref().map_or_else(|| "/v1".to_owned(), of_organization);
        for part in path {
            url.push('/');
            url.push_str(&segment(part));
        }
        let (status, bytes) = self.client.call_raw(method, &format!("{url}{query}"), body).await?;
        Ok((status, Document(bytes)))
    }

    /// Shows one thing: its JSON as it is, else its members.
    pub(super) fn show(&self, document: &Document) -> Result<(), Failure> {
        if self.json {
            document.print();
            return Ok(());
        }
        print_members(&document.read::<Members>()?, &[]);
        Ok(())
    }

    /// Shows a list that has one page only: its JSON as it is, else a table.
    pub(super) fn show_items(&self, document: &Document, columns: &'static [Column]) -> Result<(), Failure> {
        if self.json {
            document.print();
            return Ok(());
        }
        Table::new(columns).print(&document.read::<Page>()?.rows());
        Ok(())
    }

    /// One page of a list.
    pub(super) async fn page(
        &self,
        path: &[&str],
        query: &Query,
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<Document, Failure> {
        self.get(path, &query.clone().with("limit", Some(limit.min(MAX_PAGE_ROWS))).with("cursor", cursor)).await
    }

    /// Shows as many rows of a list as are wanted, page by page: their JSON a line each, else a table.
    pub(super) async fn list(
        &self,
        path: &[&str],
        query: &Query,
        paging: Paging,
        columns: &'static [Column],
    ) -> Result<(), Failure> {
        let mut table = Table::new(columns);
        self.pages(path, query, paging, |document| {
            let page = document.read()?;
            self.show_rows(&page, &mut table);
            Ok(page)
        })
        .await
    }

    /// Shows the first row of a list, and does not say that there are more: they were not asked for.
    pub(super) async fn show_first(&self, path: &[&str], columns: &'static [Column]) -> Result<(), Failure> {
        let page = self.page(path, &Query::default(), 1, None).await?.read()?;
        self.show_rows(&page, &mut Table::new(columns));
        Ok(())
    }

    /// Shows a page's rows: their JSON a line each, else as the next ones of a table.
    fn show_rows(&self, page: &Page, table: &mut Table) {
        if self.json {
            page.items.iter().for_each(|item| output::print(format_args!("{item}\n")));
        } else {
            table.print(&page.rows());
        }
    }

    /// Gives page after page to `take`, which reads it, until as many rows as are wanted have come.
    pub(super) async fn pages(
        &self,
        path: &[&str],
        query: &Query,
        paging: Paging,
        mut take: impl FnMut(&Document) -> Result<Page, Failure>,
    ) -> Result<(), Failure> {
        let mut left = if paging.all { u64::MAX } else { paging.limit };
        let mut cursor = None;
        loop {
            let page = take(&self.page(path, query, left, cursor.as_deref()).await?)?;
            left = left.saturating_sub(page.items.len() as u64);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(());
            }
            if left == 0 {
                output::tell(format_args!("There are more; --limit N or --all shows them."));
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_holds_what_is_given_and_escapes_it() {
        let query = Query::default().with("a", None::<&str>).with("from", Some("2026-11-30T18:00:00+09:00"));
        assert_eq!(query.0, "?from=2026-11-30T18%3A00%3A00%2B09%3A00");
        assert_eq!(query.with("n", Some(5)).0, "?from=2026-11-30T18%3A00%3A00%2B09%3A00&n=5");
    }
}
