//! API tokens are kept, found by their hash, listed and revoked.

use hikyaku_core::ids::{ID_RANDOM_BYTES, OrganizationId, TokenId};
use hikyaku_core::token::{ApiToken, Scope, TOKEN_RANDOM_BYTES};

use super::fixture::*;
use crate::store::*;

/// A token made at `seconds`; the number makes it another one than those with other numbers.
fn token(scope: Scope, seconds: i64, number: u8) -> ApiToken {
    let name = format!("レジ 'no' {number}");
    ApiToken::issue(scope, name, at(seconds), [number; ID_RANDOM_BYTES], [number; TOKEN_RANDOM_BYTES]).0
}

fn of(name: &str) -> Scope {
    Scope::Organization(organization(name))
}

async fn list(store: &dyn Store, organization: Option<OrganizationId>) -> Vec<ApiToken> {
    store.tokens(TokenQuery { organization, before: None, limit: 1000 }).await.unwrap()
}

pub(crate) async fn s16_a_token_is_found_by_its_hash_until_it_is_revoked(store: &dyn Store) {
    let tokens = [token(Scope::Admin, 1, 1), token(of("acme"), 2, 2)];
    for token in &tokens {
        assert_eq!(store.valid_token(&token.hash).await.unwrap(), None);
        store.create_token(token.clone()).await.unwrap();
    }
    for token in &tokens {
        assert_eq!(store.valid_token(&token.hash).await.unwrap().as_ref(), Some(token));
    }
    assert!(store.revoke_token(None, &tokens[0].id, at(3)).await.unwrap());
    assert_eq!(store.valid_token(&tokens[0].hash).await.unwrap(), None);
    assert_eq!(store.valid_token(&tokens[1].hash).await.unwrap().as_ref(), Some(&tokens[1]));
}

pub(crate) async fn an_id_and_a_hash_are_taken_once(store: &dyn Store) {
    let first = token(Scope::Admin, 1, 1);
    store.create_token(first.clone()).await.unwrap();
    let other = token(of("acme"), 1, 2);
    for again in [ApiToken { id: first.id.clone(), ..other.clone() }, ApiToken { hash: first.hash, ..other }] {
        let refused = store.create_token(again).await;
        assert!(matches!(refused, Err(StoreError::Damaged(_))), "{refused:?}");
    }
    assert_eq!(list(store, None).await, [first]);
}

pub(crate) async fn a_revocation_keeps_its_first_time(store: &dyn Store) {
    let token = token(of("acme"), 1, 1);
    store.create_token(token.clone()).await.unwrap();
    for seconds in [5, 9] {
        assert!(store.revoke_token(Some(&acme()), &token.id, at(seconds)).await.unwrap());
        assert_eq!(list(store, None).await, [ApiToken { revoked_at: Some(at(5)), ..token.clone() }]);
    }
    let unknown = TokenId::parse("tok_none").unwrap();
    assert!(!store.revoke_token(None, &unknown, at(9)).await.unwrap());
}

pub(crate) async fn s17_tokens_of_another_organization_are_out_of_reach(store: &dyn Store) {
    let (ours, admin) = (token(of("acme"), 1, 1), token(Scope::Admin, 2, 2));
    store.create_token(ours.clone()).await.unwrap();
    store.create_token(admin.clone()).await.unwrap();
    let rival = organization("rival");
    assert!(list(store, Some(rival.clone())).await.is_empty());
    assert!(!store.revoke_token(Some(&rival), &ours.id, at(3)).await.unwrap());
    assert!(!store.revoke_token(Some(&acme()), &admin.id, at(3)).await.unwrap());
    assert_eq!(list(store, None).await, [admin, ours.clone()]);
    assert_eq!(list(store, Some(acme())).await, [ours]);
}

pub(crate) async fn tokens_are_listed_newest_first_page_by_page(store: &dyn Store) {
    let scopes = [of("acme"), of("rival"), Scope::Admin, of("acme"), of("acme")];
    // Two of the same millisecond are told apart by the rest of their ids.
    let all: Vec<_> = scopes.into_iter().zip(1..).map(|(scope, n)| token(scope, i64::from(n.min(4)), n)).collect();
    for index in [3, 0, 4, 1, 2] {
        store.create_token(all[index].clone()).await.unwrap();
    }
    for (organization, expected) in [(None, &[4, 3, 2, 1, 0][..]), (Some(acme()), &[4, 3, 0])] {
        let mut seen = Vec::new();
        loop {
            let before = seen.last().map(|token: &ApiToken| token.id.clone());
            let page = store.tokens(TokenQuery { organization: organization.clone(), before, limit: 2 }).await.unwrap();
            assert!(page.len() <= 2);
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        assert_eq!(seen, expected.iter().map(|index| all[*index].clone()).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_store_says_whether_a_token_is_valid_at_all(store: &dyn Store) {
    assert!(!store.any_valid_token().await.unwrap());
    let tokens = [token(Scope::Admin, 1, 1), token(of("acme"), 2, 2)];
    for token in &tokens {
        store.create_token(token.clone()).await.unwrap();
    }
    for (index, any) in [(0, true), (1, false)] {
        assert!(store.any_valid_token().await.unwrap());
        store.revoke_token(None, &tokens[index].id, at(3)).await.unwrap();
        assert_eq!(store.any_valid_token().await.unwrap(), any);
    }
}
