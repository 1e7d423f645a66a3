//! The rules of webhook delivery, receipt and order, as pure functions and data.
//!
//! Nothing here opens a socket or a file, reads a clock or draws a random number: whatever a rule needs is passed
//! in, and a rule's answer is a value. The compiler holds most of that, because neither tokio nor an HTTP library nor
//! a database is a dependency of this crate.
//!
//! Without the feature `sender` (on by default) only what a receiver needs is here, with fewer dependencies.
//!
//! Rule numbers (R…, C…, T…) are those of `docs/contract.md`; S… are those of `SECURITY.md`.

#[cfg(feature = "sender")]
pub mod address;
#[cfg(feature = "sender")]
pub mod advice;
#[cfg(feature = "sender")]
pub mod daily;
#[cfg(feature = "sender")]
pub mod delivery;
#[cfg(feature = "sender")]
pub mod disable;
pub mod envelope;
pub mod event;
#[cfg(feature = "sender")]
pub mod explain;
#[cfg(all(feature = "sender", any(test, feature = "fuzz")))]
pub mod fuzz;
#[cfg(feature = "sender")]
pub mod gap;
pub mod ids;
pub mod json;
#[cfg(feature = "sender")]
pub mod operational;
pub mod ordering;
pub mod provider;
#[cfg(feature = "sender")]
pub mod retry;
pub mod signature;
pub mod timestamp;
pub mod token;
#[cfg(feature = "sender")]
pub mod webhook;
