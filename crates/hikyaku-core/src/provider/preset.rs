//! The providers that are known by name, as data: what their public documentation says, and for ReceiptRoller's
//! signature what we assume. `docs/configuration.md` says for each what it was checked against.

use super::{Algorithm, Content, Encoding, Field, KeyForm, Layout, Profile, Scheme};

/// A provider that is known by name. Every value of it can be replaced in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// ReceiptRoller.
    ReceiptRoller,
    /// Everybody who follows standardwebhooks.com.
    StandardWebhooks,
    /// Stripe.
    Stripe,
    /// GitHub.
    GitHub,
    /// Shopify.
    Shopify,
    /// Square.
    Square,
    /// Slack, as a sender of events.
    Slack,
    /// Smaregi.
    Smaregi,
    /// Somebody else, described in the configuration.
    Custom,
}

impl Preset {
    /// All of them, under the names they have in the configuration.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("receiptroller", Self::ReceiptRoller),
        ("standard-webhooks", Self::StandardWebhooks),
        ("stripe", Self::Stripe),
        ("github", Self::GitHub),
        ("shopify", Self::Shopify),
        ("square", Self::Square),
        ("slack", Self::Slack),
        ("smaregi", Self::Smaregi),
        ("custom", Self::Custom),
    ];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, preset)| *preset == self).map_or("custom", |(name, _)| name)
    }

    /// Whether it stands for one system, whose ids are unique over all sources (C9), and not for a way of signing that
    /// many systems share.
    pub fn is_one_provider(self) -> bool {
        !matches!(self, Self::StandardWebhooks | Self::Custom)
    }

    /// How it signs and where it says what.
    pub fn profile(self) -> Profile {
        let (scheme, layout) = match self {
            Self::ReceiptRoller => (hex("x-rr-signature", "sha256="), layout(&["x-rr-delivery", "/id"], &["/type"])),
            Self::StandardWebhooks => (standard(), layout(&["webhook-id"], &["/type"])),
            Self::Stripe => (stripe(), layout(&["/id"], &["/type"])),
            Self::GitHub => {
                (hex("x-hub-signature-256", "sha256="), layout(&["x-github-delivery"], &["x-github-event"]))
            }
            Self::Shopify => (base64("x-shopify-hmac-sha256"), layout(&["x-shopify-webhook-id"], &["x-shopify-topic"])),
            Self::Square => (square(), layout(&["/event_id"], &["/type"])),
            Self::Slack => (slack(), layout(&["/event_id"], &["/event/type", "/type"])),
            Self::Smaregi => (shared_secret(), layout(&["smaregi-event-id"], &["/event", "smaregi-event"])),
            Self::Custom => (hex("", ""), layout(&["/id"], &["/type"])),
        };
        let layout = Layout { action: self.action(), timestamp: self.timestamp(), key: self.key(), ..layout };
        Profile { scheme, layout, freshness: None, answers_challenge: self == Self::Slack }
    }

    fn action(self) -> Option<Field> {
        matches!(self, Self::GitHub | Self::Smaregi).then(|| field("/action"))
    }

    fn timestamp(self) -> Vec<Field> {
        fields(match self {
            Self::ReceiptRoller | Self::Custom => &["/timestamp"],
            // The header's is the attempt's, the body's the event's.
            Self::StandardWebhooks => &["/timestamp", "webhook-timestamp"],
            Self::Stripe => &["/created"],
            Self::Shopify => &["x-shopify-triggered-at"],
            Self::Square => &["/created_at"],
            Self::Slack => &["/event_time"],
            Self::GitHub | Self::Smaregi => &[],
        })
    }

    fn key(self) -> Vec<Field> {
        fields(match self {
            Self::ReceiptRoller => &["/data/order_id", "/data/id"],
            Self::StandardWebhooks | Self::Square => &["/data/id"],
            Self::Stripe => &["/data/object/id"],
            // `/id` alone is unique among objects of one type only.
            Self::Shopify => &["/admin_graphql_api_id", "/id"],
            Self::GitHub | Self::Slack | Self::Smaregi | Self::Custom => &[],
        })
    }
}

/// HMAC-SHA256 of the body in hexadecimal, after a prefix.
fn hex(header: &str, prefix: &str) -> Scheme {
    Scheme {
        header: header.to_owned(),
        prefix: prefix.to_owned(),
        separator: None,
        algorithm: Algorithm::HmacSha256,
        encoding: Encoding::Hex,
        key: KeyForm::Text,
        content: content("{body}"),
        timestamp: None,
        url: None,
    }
}

/// HMAC-SHA256 of the body in Base64, and nothing else in the header.
fn base64(header: &str) -> Scheme {
    Scheme { encoding: Encoding::Base64, ..hex(header, "") }
}

fn standard() -> Scheme {
    Scheme {
        prefix: "v1,".to_owned(),
        separator: Some(' '),
        key: KeyForm::Standard,
        content: content("{id}.{timestamp}.{body}"),
        timestamp: Some(field("webhook-timestamp")),
        ..base64("webhook-signature")
    }
}

fn stripe() -> Scheme {
    Scheme {
        separator: Some(','),
        content: content("{timestamp}.{body}"),
        timestamp: Some(field("signature:t=")),
        ..hex("stripe-signature", "v1=")
    }
}

fn square() -> Scheme {
    Scheme { content: content("{url}{body}"), ..base64("x-square-hmacsha256-signature") }
}

fn slack() -> Scheme {
    Scheme {
        content: content("v0:{timestamp}:{body}"),
        timestamp: Some(field("x-slack-request-timestamp")),
        ..hex("x-slack-signature", "v0=")
    }
}

/// The secret itself, in a header whose name everybody chooses.
fn shared_secret() -> Scheme {
    Scheme { algorithm: Algorithm::SharedSecret, ..hex("", "") }
}

fn layout(id: &[&str], event_type: &[&str]) -> Layout {
    Layout { id: fields(id), event_type: fields(event_type), ..Layout::default() }
}

fn content(template: &str) -> Content {
    Content::parse(template).expect("the templates of this file are valid, as its tests show")
}

fn field(text: &str) -> Field {
    Field::parse(text).expect("the fields of this file are valid, as its tests show")
}

fn fields(texts: &[&str]) -> Vec<Field> {
    texts.iter().map(|text| field(text)).collect()
}
