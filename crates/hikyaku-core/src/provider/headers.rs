//! A delivery's headers, as they came.

/// Names and values; a name may come more than once, and a value need not be text.
#[derive(Debug, Clone, Default)]
pub struct Headers<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(headers: I) -> Self {
        Self(headers.into_iter().collect())
    }
}

impl<'a> Headers<'a> {
    /// All values of a name, whatever its case.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// The value of a name that comes once: of two, nobody could say which one is meant.
    pub(super) fn only(&self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.all(name);
        values.next().filter(|_| values.next().is_none())
    }
}
