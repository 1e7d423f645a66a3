//! The rules of webhook delivery, receipt and order, as pure functions and data.
//!
//! Nothing here opens a socket or a file, reads a clock or draws a random number: whatever a rule needs is passed
//! in, and a rule's answer is a value. The compiler holds most of that, because neither tokio nor an HTTP library nor
//! a database is a dependency of this crate.
//!
//! Rule numbers (R…, C…, T…) are those of `docs/contract.md`; S… are those of `SECURITY.md`.

pub mod address;
pub mod advice;
pub mod delivery;
pub mod disable;
pub mod envelope;
pub mod event;
pub mod explain;
pub mod ids;
pub mod json;
pub mod operational;
pub mod ordering;
pub mod retry;
pub mod signature;
pub mod timestamp;
pub mod token;
pub mod webhook;
