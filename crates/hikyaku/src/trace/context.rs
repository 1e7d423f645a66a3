//! Places in traces, and the header that carries them (W3C Trace Context).

use axum::http::{HeaderMap, HeaderValue};
use data_encoding::HEXLOWER;
use ring::digest::{Context as Digest, SHA256};

use super::is_sampled;
use crate::clock;

/// The header that carries a place in a trace.
pub const TRACEPARENT: &str = "traceparent";

/// A place in a trace: a span that is, or may be, recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) sampled: bool,
}

impl Context {
    /// Where the trace of a thing begins that has this kind and these names: everywhere and always the same place.
    pub fn of(kind: &str, names: &[&str]) -> Self {
        let mut digest = Digest::new(&SHA256);
        for text in [kind].iter().chain(names) {
            // With its length, so that no two lists of names run together into one.
            digest.update(&(text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        }
        let digest = digest.finish();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&digest.as_ref()[..16]);
        span.copy_from_slice(&digest.as_ref()[16..24]);
        Self { trace, span, sampled: is_sampled(trace) }
    }

    /// A new place in the same trace.
    pub fn child(self) -> Self {
        Self { span: clock::random(), ..self }
    }

    /// What a request says of where it comes from; `None` where it says nothing that can be read.
    pub fn of_request(headers: &HeaderMap) -> Option<Self> {
        let mut parts = headers.get(TRACEPARENT)?.to_str().ok()?.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let [flags] = bytes(flags)?;
        let context = Self { trace: bytes(trace)?, span: bytes(span)?, sampled: flags & 1 == 1 };
        (context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    /// The header's value.
    pub fn header(self) -> HeaderValue {
        let (trace, span) = (HEXLOWER.encode(&self.trace), HEXLOWER.encode(&self.span));
        let text = format!("00-{trace}-{span}-0{}", u8::from(self.sampled));
        HeaderValue::try_from(text).expect("hexadecimal digits and hyphens are visible ASCII characters")
    }
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}
