use super::*;
use crate::store::conformance::{conformance_suite, fixture, model};

async fn make() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

conformance_suite!(make);

/// The comparison that judges other stores must see a difference of every kind.
#[tokio::test]
async fn the_comparison_with_the_model_sees_what_differs() {
    assert!(model::compare(&MemoryStore::new(), Vec::new()).await.is_ok());
    let [a, b, c] = [(); 3].map(|()| MemoryStore::new());
    fixture::create(&a, &["w0"]).await;
    fixture::store_events(&b, &model::EVENTS[..1]).await;
    fixture::record(&c, vec![fixture::row("d0", "k1", 0)]).await;
    for different in [a, b, c] {
        let error = model::compare(&different, Vec::new()).await.unwrap_err().to_string();
        assert!(error.contains("the model is left"), "{error}");
    }
}

#[tokio::test]
async fn planted_faults_befall_the_operation_they_are_planted_for() {
    let store = MemoryStore::new();
    let unavailable = || StoreError::Unavailable("planted".into());
    store.fail_next(Operation::Commit, Fault::Before(unavailable()));
    store.fail_next(Operation::Commit, Fault::After(StoreError::Unknown("planted".into())));
    let commit = |id| store.commit(Group { publish: vec![fixture::publish_of(&[id])], ..Group::default() });

    assert!(store.ping().await.is_ok());
    assert!(matches!(commit("before").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(commit("after").await, Err(StoreError::Unknown(_))));
    assert!(commit("third").await.is_ok());
    for (id, written) in [("before", false), ("after", true), ("third", true)] {
        let event = store.event(&fixture::acme(), &fixture::event_id(id)).await.unwrap();
        assert_eq!(event.is_some(), written, "{id}");
    }

    store.set_down(Operation::Ping, true);
    assert!(store.ping().await.is_err() && store.ping().await.is_err());
    assert!(store.backlog().await.is_ok());
    store.set_down(Operation::Ping, false);
    assert!(store.ping().await.is_ok());
}
