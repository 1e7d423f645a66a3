//! Which addresses are connected to.

use hikyaku_core::address::Refusal;
use hikyaku_core::delivery::{FailureKind, Outcome};

use super::Step::{Hang, Read};
use super::*;

const REFUSED: Outcome = Outcome::Failed(FailureKind::TargetRefused);

async fn ok_endpoint() -> Endpoint {
    let ok = send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    Endpoint::start(&[&[Read, ok.clone(), Read, ok, Hang]]).await
}

fn at(name: &str, endpoint: &Endpoint) -> String {
    format!("http://{name}:{}/secret", endpoint.address.port())
}

#[tokio::test]
async fn s1_one_address_that_is_not_allowed_refuses_them_all() {
    let endpoint = ok_endpoint().await;
    let names = Arc::new(Names::default());
    for other in ["10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"] {
        names.set("shop.example", &["127.0.0.1", other]);
        let response = client_with(names.clone(), &[]).post(request(&at("shop.example", &endpoint), AMPLE)).await;
        assert_eq!(response.outcome, REFUSED, "{other}");
        assert!(response.error.starts_with("shop.example may not be delivered to: "), "{}", response.error);
        assert!(!response.error.contains("secret"), "{}", response.error);
    }
    names.set("shop.example", &["127.0.0.1"]);
    let response = client_with(names, &[]).post(request(&at("shop.example", &endpoint), AMPLE)).await;
    assert_eq!(response.outcome, Outcome::Answered(200));
    assert_eq!(endpoint.connections(), 1);
}

#[tokio::test]
async fn s4_a_name_is_vetted_on_every_attempt_even_while_a_connection_is_kept() {
    let endpoint = ok_endpoint().await;
    let names = Arc::new(Names::default());
    let client = client_with(names.clone(), &[]);
    names.set("shop.example", &["127.0.0.1"]);
    let url = at("shop.example", &endpoint);
    assert_eq!(client.post(request(&url, AMPLE)).await.outcome, Outcome::Answered(200));

    names.set("shop.example", &["10.0.0.1"]);
    assert_eq!(client.post(request(&url, AMPLE)).await.outcome, REFUSED);
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn s4_a_kept_connection_is_not_used_when_the_name_has_moved_elsewhere() {
    let endpoint = ok_endpoint().await;
    let names = Arc::new(Names::default());
    let client = client_with(names.clone(), &[]);
    names.set("shop.example", &["127.0.0.1"]);
    let url = at("shop.example", &endpoint);
    assert_eq!(client.post(request(&url, AMPLE)).await.outcome, Outcome::Answered(200));

    // Nobody listens there.
    names.set("shop.example", &["127.0.0.2"]);
    assert_eq!(client.post(request(&url, AMPLE)).await.outcome, Outcome::Failed(FailureKind::Connect));
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn s4_a_name_that_moves_to_loopback_is_refused() {
    let endpoint = ok_endpoint().await;
    let names = Arc::new(Names::default());
    let policy = TargetPolicy { allow: vec![], allow_http: true };
    let client = Client::new(policy, names.clone(), clock(), &[]).unwrap();
    names.set("shop.example", &["127.0.0.1"]);
    let response = client.post(request(&at("shop.example", &endpoint), AMPLE)).await;
    assert_eq!((response.outcome, endpoint.connections()), (REFUSED, 0), "{}", response.error);
}

#[tokio::test]
async fn s6_s7_plain_http_other_ports_and_metadata() {
    let strict = TargetPolicy { allow: vec![], allow_http: true };
    let client = Client::new(strict, Arc::new(Names::default()), clock(), &[]).unwrap();
    for url in ["https://8.8.8.8:8443/", "https://127.1/", "https://169.254.169.254/", "http://[::ffff:127.0.0.1]/"] {
        assert_eq!(client.post(request(url, AMPLE)).await.outcome, REFUSED, "{url}");
    }
    let no_http = TargetPolicy { allow_http: false, ..loopback() };
    let ca = tls::Authority::new("A test's authority");
    let client = Client::new(no_http, Arc::new(Names::default()), clock(), &[ca.root()]).unwrap();
    let response = client.post(request("http://127.0.0.1:9/", AMPLE)).await;
    assert_eq!(response.outcome, REFUSED);
}

#[tokio::test]
async fn the_next_address_is_tried_where_one_refuses() {
    let endpoint = ok_endpoint().await;
    let names = Arc::new(Names::default());
    names.set("shop.example", &["127.0.0.2", "127.0.0.1"]);
    let response = client_with(names, &[]).post(request(&at("shop.example", &endpoint), AMPLE)).await;
    assert_eq!(response.outcome, Outcome::Answered(200), "{}", response.error);
}

#[tokio::test(start_paused = true)]
async fn registering_refuses_what_attempts_would_but_not_a_name_that_is_down() {
    let names = Arc::new(Names::default());
    names.set("inside.example", &["93.184.215.14", "192.168.0.1"]);
    names.set("outside.example", &["93.184.215.14"]);
    let policy = TargetPolicy { allow: vec![], allow_http: true };
    let client = Client::new(policy, names, clock(), &[]).unwrap();
    let vet = async |url: &str| client.vet(&url.parse().unwrap()).await;
    assert!(matches!(vet("https://inside.example/").await, Err(Refusal::NotPublic { .. })));
    assert!(matches!(vet("https://10.0.0.1/").await, Err(Refusal::NotPublic { .. })));
    assert_eq!(vet("https://outside.example:9/").await, Err(Refusal::Port(9)));
    assert_eq!(vet("https://outside.example/").await, Ok(()));
    assert_eq!(vet("https://unknown.example/").await, Ok(()));
    assert_eq!(vet("https://silent.example/").await, Ok(()));
}
