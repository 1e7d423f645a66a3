//! API tokens (S16).

use hikyaku_core::ids::{OrganizationId, TokenId};

/// Which tokens to list, newest first.
#[derive(Debug, Clone)]
pub struct TokenQuery {
    /// Whose; `None` for all there are, admin tokens included.
    pub organization: Option<OrganizationId>,
    /// Only those before this one in the list: where the last page ended.
    pub before: Option<TokenId>,
    /// The most tokens to give.
    pub limit: u32,
}
