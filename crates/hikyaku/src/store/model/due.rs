//! What may have become due.

/// What a process may tell the others of, without a word on which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Deliveries.
    Deliveries,
    /// Lanes of the inbox.
    Lanes,
}

impl Due {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Deliveries, Self::Lanes];

    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries",
            Self::Lanes => "lanes",
        }
    }
}
