//! The settings of a webhook, as they stand flat in its JSON. `null` puts one back to its default.

use hikyaku_core::retry::MIN_RETRY_DELAY;
use hikyaku_core::signature::Scheme;
use hikyaku_core::webhook::Setting;

use super::fields::Fields;

/// The fields that are settings.
pub(super) const FIELDS: [&str; 10] = [
    "retryDelays",
    "timeoutSeconds",
    "maxInFlight",
    "rateLimit",
    "headers",
    "respectRetryAfter",
    "disableAfter",
    "whileInactive",
    "signature",
    "traceContext",
];

const SCHEMES: &str = "\"receiptroller\", \"standard-webhooks\" or \"standard-webhooks-ed25519\"";

/// The settings that are given, with their values; what is wrong with them is noted in `fields`.
pub(super) fn read(fields: &mut Fields<'_>) -> Vec<Setting> {
    let delays = "a list of at most 20 numbers of seconds, such as [60, 600, 3600]";
    let limit = "an object such as {\"perSecond\": 10, \"burst\": 20}";
    let headers = "an object of at most 20 header names with their values";
    let given = [
        fields.checked("retryDelays", delays).map(Setting::RetryDelays),
        fields.checked("timeoutSeconds", "a number of seconds from 1 to 30").map(Setting::Timeout),
        fields.checked("maxInFlight", "a whole number from 1 to 256").map(Setting::MaxInFlight),
        fields.checked("rateLimit", limit).map(Setting::RateLimit),
        fields.checked("headers", headers).map(Setting::Headers),
        fields.checked("respectRetryAfter", "true or false").map(Setting::RespectRetryAfter),
        fields.checked("disableAfter", "a whole number from 1 to 1000, or \"never\"").map(Setting::DisableAfter),
        fields.checked("whileInactive", "\"drop\" or \"hold\"").map(Setting::WhileInactive),
        fields.checked("signature", SCHEMES).map(Setting::Signature),
        fields.checked("traceContext", "true or false").map(Setting::TraceContext),
    ];
    check_delays(fields, &given);
    given.into_iter().flatten().collect()
}

/// The configuration's bound holds here too. What was stored before there was one can still be read.
fn check_delays(fields: &mut Fields<'_>, given: &[Option<Setting>]) {
    let Some(Some(Setting::RetryDelays(Some(schedule)))) = given.first() else { return };
    if schedule.shortest().is_some_and(|shortest| shortest < MIN_RETRY_DELAY) {
        let least = MIN_RETRY_DELAY.as_secs_f64();
        fields.fail("retryDelays", &format!("has the delay 0; at least {least} is allowed, and [] means one attempt"));
    }
}

/// The scheme that is given, or the default; `None` where what is given is none.
pub(super) fn scheme(fields: &Fields<'_>) -> Option<Scheme> {
    match fields.raw("signature") {
        None => Some(Scheme::default()),
        Some(given) => serde_json::from_str::<Option<Scheme>>(given.get()).ok().map(Option::unwrap_or_default),
    }
}
