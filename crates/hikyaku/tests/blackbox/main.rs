//! The program as a stranger meets it: every test starts the real binary, speaks HTTP to it, plays the endpoints it
//! delivers to, and judges what was seen from outside. All of it is one test binary, so that it is linked once.
//!
//! Tests are named after the rule (R…, C…) or the public case that they hold.

// The lint knows tests by their attribute; here the helpers of tests are tests too.
#![allow(clippy::unwrap_used)]
// From outside, time is what a watch shows.
#![allow(clippy::disallowed_methods)]

mod harness;

mod access;
mod bad_input;
mod cases;
mod cases_bodies;
mod check;
mod command_line;
mod console;
mod crash;
mod crash_inbox;
#[cfg(feature = "crash-points")]
mod crashes;
mod destinations;
mod disk;
mod inbox_interventions;
mod inbox_looks;
mod inbox_rules;
mod inputs;
mod metrics;
mod misbehaviour;
mod nodes;
mod operational;
mod providers;
mod publish;
mod receiver_rules;
mod reconcile;
mod recover;
mod resend;
mod sandbox;
mod sender_edges;
mod sender_failures;
mod sender_order;
mod sender_rules;
mod shutdown;
mod sql_destinations;
mod store_copy;
mod traces;
mod trial;
mod webhook_settings;
