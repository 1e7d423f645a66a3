//! What a command says when it fails, and the exit code it ends with.

use std::error::Error;
use std::process::ExitCode;

use hikyaku::check::CheckError;
use hikyaku::client::ClientError;
use hikyaku::log;
use serde_json::Value;

use super::table::plain;

/// Something failed.
pub(super) const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub(super) const WRONG_USE: u8 = 2;
/// The server gave no answer.
const NOT_REACHED: u8 = 3;
/// The server wants a token, or another one.
const NOT_ALLOWED: u8 = 4;
/// The server does not know what was named.
const NOT_FOUND: u8 = 5;

/// The exit codes, for the help.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  all is well
  1  something failed, a test delivery was not taken, or a receiver that is checked breaks a rule
  2  the command line or the configuration is wrong
  3  the server, or the receiver that is checked, gave no answer
  4  the token is missing, not valid, or not for this
  5  there is no such thing";

/// Why a command failed. The error's type decides the exit code.
pub(super) type Failure = Box<dyn Error>;

/// What was given on the command line cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct WrongUse(pub(super) String);

/// Says on standard error what failed and what can be done, and gives the exit code.
pub(super) fn failed(failure: &(dyn Error + 'static)) -> ExitCode {
    // Of a configuration everything that is wrong is told, a line each.
    let lines: Vec<_> = failure.to_string().lines().map(plain).collect();
    log::tell(format_args!("hikyaku: {}\n", lines.join("\n")));
    let of_client = failure.downcast_ref::<ClientError>();
    if let Some(advice) = of_client.and_then(advice) {
        log::tell(format_args!("{}\n", plain(&advice)));
    }
    let code = match (of_client, failure.downcast_ref::<CheckError>()) {
        (Some(error), _) => exit_code(error),
        (_, Some(CheckError::NoAnswer { .. })) => NOT_REACHED,
        (_, Some(CheckError::Probe(_))) => WRONG_USE,
        _ if failure.is::<WrongUse>() => WRONG_USE,
        _ => FAILED,
    };
    ExitCode::from(code)
}

fn exit_code(error: &ClientError) -> u8 {
    match error {
        ClientError::Address(_) | ClientError::Token => WRONG_USE,
        ClientError::NoAnswer { .. } => NOT_REACHED,
        ClientError::Refused { status: 401 | 403, .. } => NOT_ALLOWED,
        ClientError::Refused { problem, .. } if problem["type"] == "/problems/not-found" => NOT_FOUND,
        ClientError::Refused { .. } => FAILED,
    }
}

/// What a person can do about it here; what the request has wrong stands in the problem's detail.
fn advice(error: &ClientError) -> Option<String> {
    let problem = match error {
        ClientError::NoAnswer { .. } => {
            return Some("Does it run (\"hikyaku serve\")? Another one is named with --server URL.".to_owned());
        }
        ClientError::Refused { problem, .. } => problem,
        ClientError::Address(_) | ClientError::Token => return None,
    };
    let advice = match problem["type"].as_str()?.strip_prefix("/problems/")? {
        "unauthorized" => "Put a token into HIKYAKU_TOKEN; \"hikyaku token create\" makes one.",
        "forbidden" => "Put an admin token into HIKYAKU_TOKEN.",
        "not-found" => "Another organization is named with --organization.",
        "no-such-path" => "The server is of another version than this command.",
        "webhook-off" => "\"hikyaku webhooks enable\" switches it on.",
        "delivery-waiting" => "\"hikyaku explain\" says when it is due.",
        "unavailable" => "Nothing was changed; try again in a moment.",
        "outcome-unknown" => return Some(format!("It may be stored. {}", repeat(problem))),
        _ => return None,
    };
    Some(advice.to_owned())
}

fn repeat(problem: &Value) -> String {
    let ids: Vec<_> = problem["ids"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match ids.as_slice() {
        [] => "Look before you repeat it.".to_owned(),
        ids => format!("Publish it again under the same id, which sends nothing twice: {}", ids.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, kind: &str) -> ClientError {
        ClientError::Refused { status, problem: json!({"type": format!("/problems/{kind}"), "ids": ["a", "b"]}) }
    }

    #[test]
    fn every_failure_has_its_exit_code() {
        let gone = ClientError::NoAnswer { server: "x".into(), reason: "y".into() };
        for (error, code) in [
            (ClientError::Address("x".into()), 2),
            (ClientError::Token, 2),
            (gone, 3),
            (refused(401, "unauthorized"), 4),
            (refused(403, "forbidden"), 4),
            (refused(404, "not-found"), 5),
            (refused(404, "no-such-path"), 1),
            (refused(409, "event-conflict"), 1),
            (refused(500, "internal"), 1),
        ] {
            assert_eq!(exit_code(&error), code, "{error}");
        }
    }

    #[test]
    fn where_there_is_something_to_do_it_is_said() {
        let said = |status, kind| advice(&refused(status, kind)).unwrap_or_default();
        assert!(said(401, "unauthorized").contains("HIKYAKU_TOKEN"));
        assert!(said(500, "outcome-unknown").contains("a, b"));
        assert_eq!(said(400, "invalid-request"), "", "the detail says it");
        assert_eq!(advice(&ClientError::Refused { status: 502, problem: Value::Null }), None);
    }
}
