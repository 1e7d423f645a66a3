//! Which server a command talks to, and with which token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::Args;
use hikyaku::client::{Client, ClientError};
use hikyaku::config::Config;

use super::Settings;

/// A running server, and how it is reached.
#[derive(Debug, Args)]
pub(super) struct Server {
    /// The running server [default: the address that the configuration listens on]
    #[arg(long, value_name = "URL", env = "HIKYAKU_SERVER")]
    pub(super) server: Option<String>,
    /// The API token to present; better given as the variable, which other users cannot see [default: api.token of the
    /// configuration]
    #[arg(long, value_name = "TOKEN", env = "HIKYAKU_TOKEN", hide_env_values = true)]
    pub(super) token: Option<String>,
    #[command(flatten)]
    pub(super) settings: Settings,
}

/// A client of the server at `url`.
pub(super) fn named(url: &str, token: Option<&str>) -> Result<Client, ClientError> {
    Client::new(url, token)
}

/// A client of the server that runs with this configuration on this machine.
pub(super) fn configured(config: &Config, token: Option<&str>) -> Result<Client, String> {
    let mut address = config.listen;
    if address.port() == 0 {
        return Err("the running server has a port that the configuration does not name; name it with --server \
                    http://127.0.0.1:PORT"
            .to_owned());
    }
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let configured = config.api.token.as_ref().map(|token| token.reveal());
    Client::new(&format!("http://{address}"), token.or(configured)).map_err(|error| error.to_string())
}
