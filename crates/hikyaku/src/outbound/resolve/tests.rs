//! The machine's way to addresses, with a hosts file and a name server of the tests' own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SOA};
use hickory_resolver::proto::rr::{RData, Record};
use tokio::net::UdpSocket;
use tokio::time::{interval, timeout};

use super::*;

/// How long its answers may be remembered, if it were for the name server.
const AN_HOUR_S: u32 = 3600;

fn resolver(hosts: &str) -> SystemResolver {
    let mut resolver = SystemResolver::new().unwrap();
    resolver.hosts = Hosts::default();
    resolver.hosts.read_hosts_conf(hosts.as_bytes()).unwrap();
    resolver
}

#[tokio::test]
async fn the_hosts_file_comes_first_and_is_enough() {
    let resolver = resolver("127.0.0.1 shop.example shop\n::1 shop.example\n10.0.0.7 four.example\n");
    let all = resolver.resolve("shop.example").await.unwrap();
    assert_eq!(all, ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
    assert_eq!(resolver.resolve("four.example").await.unwrap(), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn without_name_servers_a_lookup_says_so_and_blames_this_machine() {
    let mut resolver = resolver("");
    let empty = TokioResolver::builder_with_config(ResolverConfig::default(), TokioRuntimeProvider::default());
    resolver.servers = empty.build().unwrap();
    resolver.without_servers = Some("/etc/resolv.conf: not there".to_owned());
    let error = resolver.resolve("shop.example").await.unwrap_err();
    assert_eq!(error, ResolveError::Local("/etc/resolv.conf: not there".to_owned()));
    let localhost = resolver.resolve("localhost").await.unwrap();
    assert!(!localhost.is_empty() && localhost.iter().all(IpAddr::is_loopback), "{localhost:?}");
}

#[tokio::test]
async fn case17_neither_answer_is_kept_for_long() {
    let resolver = SystemResolver::new().unwrap();
    let options = resolver.servers.options();
    assert!(options.negative_max_ttl.unwrap() <= Duration::from_secs(5));
    assert!(options.positive_max_ttl.unwrap() <= Duration::from_secs(60));
}

/// A name server that knows no name until it is up, and then the same address for every name.
async fn name_server(is_up: Arc<AtomicBool>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let asked = Message::from_vec(&packet[..length]).unwrap();
            socket.send_to(&answer(&asked, is_up.load(Ordering::SeqCst)).to_vec().unwrap(), from).await.unwrap();
        }
    });
    address
}

fn answer(asked: &Message, is_up: bool) -> Message {
    let query = asked.queries[0].clone();
    let mut answer = Message::response(asked.metadata.id, OpCode::Query);
    answer.metadata.recursion_available = true;
    let (name, kind) = (query.name().clone(), query.query_type());
    answer.add_query(query);
    if is_up && kind == RecordType::A {
        answer.add_answer(Record::from_rdata(name, AN_HOUR_S, RData::A(A::new(192, 0, 2, 7))));
    } else {
        answer.metadata.response_code = if is_up { ResponseCode::NoError } else { ResponseCode::NXDomain };
        let zone = SOA::new(name.base_name(), name.base_name(), 1, 3600, 600, 86_400, AN_HOUR_S);
        answer.add_authority(Record::from_rdata(name.base_name(), AN_HOUR_S, RData::SOA(zone)));
    }
    answer
}

#[tokio::test]
async fn case17_a_name_that_comes_back_is_found_soon_whatever_its_server_said_before() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let is_up = Arc::new(AtomicBool::new(false));
    let address = name_server(is_up.clone()).await;
    let mut server = NameServerConfig::udp(address.ip());
    let mut connection = ConnectionConfig::udp();
    connection.port = address.port();
    server.connections = vec![connection];
    let config = ResolverConfig::from_name_servers(vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    set(builder.options_mut());
    let mut resolver = resolver("");
    (resolver.servers, resolver.without_servers) = (builder.build().unwrap(), None);

    assert_eq!(resolver.resolve("shop.example.com").await, Err(ResolveError::NoAddress));
    is_up.store(true, Ordering::SeqCst);
    let mut ticks = interval(Duration::from_millis(100));
    let found = timeout(PATIENCE, async {
        loop {
            ticks.tick().await;
            if let Ok(found) = resolver.resolve("shop.example.com").await {
                return found;
            }
        }
    });
    assert_eq!(found.await.expect("it is not asked for again"), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
}
