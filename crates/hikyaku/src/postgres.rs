//! What a destination and the store share of PostgreSQL: where a database is, how it is spoken to on the way, and what it
//! says when something goes wrong.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long one server may take to accept a connection, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be silent before it is tested, and sent data unacknowledged before it is given up.
const SILENCE: Duration = Duration::from_secs(15);
/// The modes of libpq that verify the server. Ours always does.
const VERIFYING: [&str; 2] = ["verify-ca", "verify-full"];

/// A database, by its URL.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    /// Its URL without the password.
    pub(crate) shown: String,
}

/// What went wrong, with its cause and without any row's values.
pub(crate) fn described(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} (error {})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Whether a URL is one of PostgreSQL.
pub(crate) fn is_url(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// Says what is wrong with a URL, without its password.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    Target::parse(url).map(drop)
}

/// A URL as it can be shown to people: as it is, but for the password.
pub(crate) fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://").filter(|_| is_url(url))?;
        // Up to the last one, because a password may hold one that should have been escaped.
        let (credentials, rest) = rest.rsplit_once('@')?;
        let (user, password) = credentials.split_once(':')?;
        Some(format!("{scheme}://{user}:(hidden:{}-bytes)@{rest}", password.len()))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

impl Target {
    /// Reads a URL. TLS is required unless it says otherwise or leads to this machine.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let mode = ssl_mode(url);
        let known = match mode {
            Some(mode) if VERIFYING.contains(&mode) => url.replace(&format!("sslmode={mode}"), "sslmode=require"),
            _ => url.to_owned(),
        };
        let mut config: Config = known.parse().map_err(|error: tokio_postgres::Error| {
            let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            format!("is no URL like \"postgres://user:password@host:5432/database\": {reason}")
        })?;
        if url.contains("?password=") || url.contains("&password=") {
            return Err("has its password among the parameters; put it before the host, as in \"user:password@host\""
                .to_owned());
        }
        let authority = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
        if authority.matches('@').count() > 1 {
            return Err("has more than one `@`; write one that belongs to the user or the password as %40".to_owned());
        }
        if config.get_hosts().is_empty() {
            return Err("names no host; it is like \"postgres://user:password@host:5432/database\"".to_owned());
        }
        if mode.is_none() {
            let all_here = config.get_hosts().iter().all(is_this_machine);
            config.ssl_mode(if all_here { SslMode::Disable } else { SslMode::Require });
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        config.keepalives_idle(SILENCE).tcp_user_timeout(SILENCE);
        if config.get_application_name().is_none() {
            config.application_name("hikyaku");
        }
        Ok(Self { config, shown: without_password(url) })
    }
}

/// The value of the parameter `sslmode`.
fn ssl_mode(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|parameter| parameter.strip_prefix("sslmode="))
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        Target::parse(url).unwrap().config.get_ssl_mode()
    }

    #[test]
    fn tls_is_required_unless_the_url_says_otherwise_or_stays_on_this_machine() {
        for (url, expected) in [
            ("postgres://db.example/books", SslMode::Require),
            ("postgresql://u:p@10.0.0.5/books", SslMode::Require),
            ("postgres://localhost,db.example/books", SslMode::Require),
            ("postgres://localhost/books", SslMode::Disable),
            ("postgres://127.0.0.1:5433/books", SslMode::Disable),
            ("postgres://[::1]/books", SslMode::Disable),
            ("postgres://%2Frun%2Fpostgresql/books", SslMode::Disable),
            ("postgres://db.example/books?sslmode=disable", SslMode::Disable),
            ("postgres://db.example/books?sslmode=prefer", SslMode::Prefer),
            ("postgres://localhost/books?sslmode=require", SslMode::Require),
            ("postgres://localhost/books?connect_timeout=3&sslmode=verify-full", SslMode::Require),
            ("postgres://localhost/books?sslmode=verify-ca", SslMode::Require),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
    }

    #[test]
    fn s19_a_password_with_an_at_sign_is_not_told() {
        let url = "postgres://user:hun@ter2@db.example/books";
        assert_eq!(without_password(url), "postgres://user:(hidden:8-bytes)@db.example/books");
        let reason = Target::parse(url).unwrap_err();
        assert!(reason.contains("%40") && !reason.contains("ter2"), "{reason}");
        assert!(Target::parse("postgres://user:hun%40ter2@db.example/books").is_ok());
    }

    #[test]
    fn s19_what_is_said_of_a_url_has_no_password() {
        let target = Target::parse("postgres://user:hunter2@db.example:5433/books?connect_timeout=3").unwrap();
        assert_eq!(target.shown, "postgres://user:(hidden:7-bytes)@db.example:5433/books?connect_timeout=3");
        assert!(!format!("{target:?}").contains("hunter2"), "{target:?}");
        for (url, part) in [
            ("postgres://u:hunter2@db.example/books?sslmode=allow", "sslmode"),
            ("postgres://u:hunter2@db.example/books?sslrootcert=x", "sslrootcert"),
            ("postgres://u:hunter2@db.example:port/books", "port"),
            ("postgres://u:hunter2@/books", "names no host"),
            ("postgres:///books", "names no host"),
            ("postgres://db.example/books?sslmode=disable&password=hunter2", "among the parameters"),
        ] {
            let error = check_url(url).unwrap_err();
            assert!(error.contains(part) && !error.contains("hunter2"), "{url}: {error}");
        }
        for url in ["postgres://db.example/books", "postgres://user@db.example/books", "postgres://%2Frun/books"] {
            assert_eq!(without_password(url), url);
        }
    }
}
