//! API tokens: what callers of the API prove themselves with (S16). A token is shown once; what is kept is its hash.

use std::fmt;

use jiff::Timestamp;
use ring::digest;

use crate::ids::{ID_RANDOM_BYTES, OrganizationId, TokenId};

/// Random bytes in a token: twice what S16 asks for.
pub const TOKEN_RANDOM_BYTES: usize = 32;
/// Longest name of a token, in bytes.
pub const MAX_TOKEN_NAME_BYTES: usize = 200;

const ADMIN_PREFIX: &str = "hik_admin_";
const ORGANIZATION_PREFIX: &str = "hik_";
/// Length of a SHA-256, in bytes.
const HASH_BYTES: usize = 32;

/// What a token opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything, in all organizations.
    Admin,
    /// What belongs to one organization (S17).
    Organization(OrganizationId),
}

impl Scope {
    /// The organization it is bound to, if it is.
    pub fn organization(&self) -> Option<&OrganizationId> {
        match self {
            Self::Admin => None,
            Self::Organization(organization) => Some(organization),
        }
    }

    fn prefix(&self) -> &'static str {
        match self {
            Self::Admin => ADMIN_PREFIX,
            Self::Organization(_) => ORGANIZATION_PREFIX,
        }
    }
}

/// A token as its holder knows it. Never printed by accident, and never kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    fn new(scope: &Scope, random: [u8; TOKEN_RANDOM_BYTES]) -> Self {
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{}{hex}", scope.prefix()))
    }

    /// The token itself, for the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The SHA-256 of a token. A token is as hard to guess as a key, so no slow hash is needed; and who looks one up learns
/// by the time it takes only about a hash, not about a token (S13).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; HASH_BYTES]);

impl TokenHash {
    /// The hash of what somebody presents, if it has a token's form: a known prefix and 64 lower-case hexadecimal digits.
    /// What has not is no token, and nobody need be asked.
    pub fn of(presented: &[u8]) -> Option<Self> {
        let digits = [ADMIN_PREFIX, ORGANIZATION_PREFIX].iter().find_map(|p| presented.strip_prefix(p.as_bytes()))?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.len() == 2 * TOKEN_RANDOM_BYTES && digits.iter().all(is_digit)).then(|| Self::hash(presented))
    }

    /// A hash that was kept, or `None` if it has another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    /// The hash as it is kept.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn hash(token: &[u8]) -> Self {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
        Self(hash)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Its id: what it is called by once nobody shows it any more.
    pub id: TokenId,
    /// What it opens.
    pub scope: Scope,
    /// For people: whose it is, or what it is for. May be empty.
    pub name: String,
    /// What it is found by.
    pub hash: TokenHash,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it opens nothing.
    pub revoked_at: Option<Timestamp>,
}

impl ApiToken {
    /// A new token of this scope, beside what is kept of it. The random bytes make the id and the token.
    pub fn issue(
        scope: Scope,
        name: String,
        now: Timestamp,
        id: [u8; ID_RANDOM_BYTES],
        token: [u8; TOKEN_RANDOM_BYTES],
    ) -> (Self, Token) {
        let token = Token::new(&scope, token);
        let hash = TokenHash::hash(token.reveal().as_bytes());
        let kept = Self { id: TokenId::generate(now, id), scope, name, hash, created_at: now, revoked_at: None };
        (kept, token)
    }
}

/// Takes a text as a token's name, or says why it cannot be one.
pub fn check_token_name(name: String) -> Result<String, String> {
    if name.len() > MAX_TOKEN_NAME_BYTES {
        return Err(format!("is {} bytes long; at most {MAX_TOKEN_NAME_BYTES} are allowed", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("contains a control character".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(scope: Scope, random: u8) -> (ApiToken, Token) {
        ApiToken::issue(scope, "till".into(), Timestamp::UNIX_EPOCH, [1; ID_RANDOM_BYTES], [random; TOKEN_RANDOM_BYTES])
    }

    #[test]
    fn s16_a_token_says_what_it_is_and_only_its_hash_is_kept() {
        let acme = Scope::Organization(OrganizationId::parse("acme").unwrap());
        for (scope, prefix) in [(Scope::Admin, "hik_admin_"), (acme, "hik_")] {
            let (kept, token) = issue(scope, 0xa7);
            assert_eq!(token.reveal(), format!("{prefix}{}", "a7".repeat(32)));
            assert_eq!(TokenHash::of(token.reveal().as_bytes()), Some(kept.hash));
            assert!(!format!("{kept:?}{token:?}").contains("a7a7"), "{kept:?}{token:?}");
            assert_eq!(format!("{token:?} {:?}", kept.hash), "Token(…) TokenHash(…)");
            assert_eq!(TokenHash::from_bytes(kept.hash.as_bytes()), Some(kept.hash));
            let opened = kept.scope.organization().map(OrganizationId::as_str);
            assert_eq!(opened, (prefix == ORGANIZATION_PREFIX).then_some("acme"));
        }
        assert_ne!(issue(Scope::Admin, 1).0.hash, issue(Scope::Admin, 2).0.hash);
        let random = std::array::from_fn(|place| place as u8 + 0x40);
        let digits: String = (0x40..0x60).map(|byte| format!("{byte:02x}")).collect();
        let (_, token) = ApiToken::issue(Scope::Admin, String::new(), Timestamp::UNIX_EPOCH, [1; _], random);
        assert_eq!(token.reveal(), format!("{ADMIN_PREFIX}{digits}"), "all of the random bytes are in it");
    }

    /// The hash of FIPS 180-2's example "abc": a text and a hash that are not ours.
    #[test]
    fn s16_the_hash_is_sha_256() {
        let hex: String = TokenHash::hash(b"abc").as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn s13_what_has_not_a_tokens_form_is_never_hashed() {
        let (_, token) = issue(Scope::Admin, 0xab);
        let good = token.reveal();
        let cases = [
            String::new(),
            "hik_".to_owned(),
            good.to_uppercase(),
            good.replace("ab", "AB"),
            good[..good.len() - 1].to_owned(),
            format!("{good}a"),
            format!("{good} "),
            format!(" {good}"),
            good.replacen('b', "g", 1),
            good.replacen("hik_", "hik-", 1),
            good.replacen("admin", "root", 1),
        ];
        for bad in cases {
            assert_eq!(TokenHash::of(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_name_is_short_and_has_no_control_characters() {
        assert!(check_token_name("レジ 2".to_owned()).is_ok() && check_token_name(String::new()).is_ok());
        assert!(check_token_name("a\nb".to_owned()).unwrap_err().contains("control"));
        assert!(check_token_name("x".repeat(MAX_TOKEN_NAME_BYTES)).is_ok());
        assert!(check_token_name("x".repeat(MAX_TOKEN_NAME_BYTES + 1)).unwrap_err().contains("at most 200"));
    }
}
