//! API tokens in the model.

use std::collections::BTreeMap;

use hikyaku_core::ids::{OrganizationId, TokenId};
use hikyaku_core::token::{ApiToken, TokenHash};
use jiff::Timestamp;

use crate::store::{StoreError, TokenQuery};

#[derive(Debug, Clone, Default)]
pub(super) struct Tokens(BTreeMap<TokenId, ApiToken>);

impl Tokens {
    pub(super) fn create(&mut self, token: ApiToken) -> Result<(), StoreError> {
        if self.0.values().any(|known| known.id == token.id || known.hash == token.hash) {
            return Err(StoreError::Damaged(format!("the new token {} is not new", token.id)));
        }
        self.0.insert(token.id.clone(), token);
        Ok(())
    }

    pub(super) fn find_valid(&self, hash: &TokenHash) -> Option<ApiToken> {
        self.0.values().find(|token| token.hash == *hash && token.revoked_at.is_none()).cloned()
    }

    pub(super) fn any_valid(&self) -> bool {
        self.0.values().any(|token| token.revoked_at.is_none())
    }

    pub(super) fn revoke(&mut self, organization: Option<&OrganizationId>, id: &TokenId, at: Timestamp) -> bool {
        let found = self.0.get_mut(id).filter(|token| is_of(token, organization));
        found.map(|token| token.revoked_at.get_or_insert(at)).is_some()
    }

    pub(super) fn list(&self, query: &TokenQuery) -> Vec<ApiToken> {
        let newest_first = self.0.values().rev();
        let listed = newest_first
            .filter(|token| is_of(token, query.organization.as_ref()))
            .filter(|token| query.before.as_ref().is_none_or(|before| token.id < *before));
        listed.take(query.limit as usize).cloned().collect()
    }
}

fn is_of(token: &ApiToken, organization: Option<&OrganizationId>) -> bool {
    organization.is_none() || token.scope.organization() == organization
}
