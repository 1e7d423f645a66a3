//! What a node does. Nodes over one store share the work; each may be told to do only some of it.

use std::collections::BTreeSet;

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Delivers what was published.
    Sender,
    /// Receives deliveries: `POST /in/{source}`.
    Inbox,
    /// Works received deliveries off to their destinations.
    Worker,
    /// Answers the API, and takes what is published.
    Api,
    /// Compares with providers' lists, one node at a time.
    Reconcile,
}

impl Role {
    /// All of them: what a node does unless it is told otherwise.
    pub const ALL: [Self; 5] = [Self::Sender, Self::Inbox, Self::Worker, Self::Api, Self::Reconcile];

    /// The word used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Inbox => "inbox",
            Self::Worker => "worker",
            Self::Api => "api",
            Self::Reconcile => "reconcile",
        }
    }

    /// The role of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// The roles of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Default for Roles {
    fn default() -> Self {
        Self(Role::ALL.into())
    }
}

impl Roles {
    /// These roles, each once.
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Self {
        Self(roles.into_iter().collect())
    }

    /// Whether a node has this role.
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// In a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Role> {
        self.0.iter().copied()
    }
}
