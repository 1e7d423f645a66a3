//! What this side counts, and the gauges that are read when somebody asks. No id and no raw path is a label.

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::Response;
use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::clock::Stopwatch;
use crate::store::{Backlog, Upkeep};

const REQUESTS: &str = "hikyaku_http_requests_total";
const REQUEST_DURATION: &str = "hikyaku_http_request_duration_seconds";
const STORE_UP: &str = "hikyaku_store_up";
const DELIVERIES_WAITING: &str = "hikyaku_deliveries_waiting";
const DELIVERIES_LATE: &str = "hikyaku_deliveries_late_seconds";
const EFFECTS_WAITING: &str = "hikyaku_effects_waiting";
const EFFECTS_LATE: &str = "hikyaku_effects_late_seconds";
const ROUTE_WAITING: &str = "hikyaku_route_effects_waiting";
const ROUTE_OLDEST: &str = "hikyaku_route_oldest_seconds";
const WEBHOOKS_OFF: &str = "hikyaku_webhooks_off";
const OLDEST_TRANSACTION: &str = "hikyaku_store_oldest_transaction_seconds";
const ENDED_ROWS: &str = "hikyaku_store_ended_rows";

/// The route of requests to paths that there are not.
const NO_ROUTE: &str = "none";

/// Says what each metric means; once, when there is a router.
pub(super) fn describe() {
    describe_counter!(REQUESTS, "Requests to this server, by method, route and status");
    describe_histogram!(
        REQUEST_DURATION,
        Unit::Seconds,
        "From a request's headers until its answer's headers, by method and route"
    );
    describe_gauge!(STORE_UP, "1 if the store answered this scrape, else 0 and the other gauges are old");
    describe_gauge!(DELIVERIES_WAITING, "Deliveries that have not ended, by state");
    describe_gauge!(DELIVERIES_LATE, "How long the oldest delivery has been due, in seconds");
    describe_gauge!(EFFECTS_WAITING, "Effects of inbox rows that wait or are under way");
    describe_gauge!(EFFECTS_LATE, "How long the oldest effect has been due, in seconds");
    describe_gauge!(ROUTE_WAITING, "Effects that wait, by route and whether they have failed before");
    describe_gauge!(ROUTE_OLDEST, "How long ago the oldest row was received that waits for a route, in seconds");
    describe_gauge!(WEBHOOKS_OFF, "Webhooks that are off");
    describe_gauge!(OLDEST_TRANSACTION, "How long the store's oldest transaction has been open, in seconds");
    describe_gauge!(ENDED_ROWS, "Rows of what waits that have ended and are not cleaned up, as the store estimates");
}

/// Shows what waits for these routes.
pub(super) fn show_routes<'a>(
    backlog: &Backlog,
    routes: impl Iterator<Item = (&'a OrganizationId, &'a str)>,
    now: Timestamp,
) {
    for (organization, route) in routes {
        let waiting = backlog.routes.get(&(organization.clone(), route.to_owned())).copied().unwrap_or_default();
        let set = |state: &'static str, effects: u64| {
            gauge!(ROUTE_WAITING, "route" => route.to_owned(), "state" => state).set(effects as f64);
        };
        set("fresh", waiting.effects.saturating_sub(waiting.failing));
        set("failing", waiting.failing);
        let age = waiting.oldest.map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64().max(0.0));
        gauge!(ROUTE_OLDEST, "route" => route.to_owned()).set(age);
    }
}

/// Shows how much waits, and by `now` on the schedule clock how late it is.
pub(super) fn show(backlog: Option<Backlog>, now: Timestamp) {
    gauge!(STORE_UP).set(if backlog.is_some() { 1.0 } else { 0.0 });
    let Some(backlog) = backlog else { return };
    let late = |due: Option<Timestamp>| due.map_or(0.0, |due| now.duration_since(due).as_secs_f64().max(0.0));
    let unleased = backlog.deliveries.saturating_sub(backlog.deliveries_leased);
    gauge!(DELIVERIES_WAITING, "state" => "unleased").set(unleased as f64);
    gauge!(DELIVERIES_WAITING, "state" => "leased").set(backlog.deliveries_leased as f64);
    gauge!(DELIVERIES_WAITING, "state" => "held").set(backlog.deliveries_held as f64);
    gauge!(DELIVERIES_LATE).set(late(backlog.oldest_delivery_due));
    gauge!(EFFECTS_WAITING).set(backlog.effects as f64);
    gauge!(EFFECTS_LATE).set(late(backlog.oldest_effect_due));
    gauge!(WEBHOOKS_OFF).set(backlog.webhooks_off as f64);
}

/// Shows what keeps the store from cleaning up.
pub(super) fn show_upkeep(upkeep: Upkeep) {
    gauge!(OLDEST_TRANSACTION).set(upkeep.oldest_transaction.unwrap_or_default().as_secs_f64());
    gauge!(ENDED_ROWS).set(upkeep.ended_rows as f64);
}

/// Counts a request under its route's template: what stands in a path is no label.
pub(super) async fn count<F: Future<Output = Response>>(
    request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    let method = method(request.method());
    let route =
        request.extensions().get::<MatchedPath>().map_or_else(|| NO_ROUTE.into(), |path| path.as_str().to_owned());
    let watch = Stopwatch::start();
    let response = serve(request).await;
    histogram!(REQUEST_DURATION, "method" => method, "route" => route.clone()).record(watch.elapsed());
    let status = response.status().as_str().to_owned();
    counter!(REQUESTS, "method" => method, "route" => route, "status" => status).increment(1);
    response
}

/// A method's name, or `other`: a caller may invent any number of them.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RouteBacklog;
    use metrics_exporter_prometheus::PrometheusBuilder;

    #[test]
    fn the_gauges_tell_how_much_waits_and_how_late_it_is() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let at = |second| Timestamp::from_second(second).unwrap();
        let backlog = Backlog {
            deliveries: 3,
            deliveries_leased: 2,
            oldest_delivery_due: Some(at(40)),
            deliveries_held: 7,
            effects: 2,
            oldest_effect_due: Some(at(200)),
            lanes: Default::default(),
            routes: Default::default(),
            webhooks_off: 1,
        };
        ::metrics::with_local_recorder(&recorder, || show(Some(backlog), at(100)));
        let text = recorder.handle().render();
        for line in [
            "hikyaku_store_up 1",
            "hikyaku_deliveries_waiting{state=\"unleased\"} 1",
            "hikyaku_deliveries_waiting{state=\"leased\"} 2",
            "hikyaku_deliveries_waiting{state=\"held\"} 7",
            "hikyaku_deliveries_late_seconds 60",
            "hikyaku_effects_waiting 2",
            "hikyaku_effects_late_seconds 0",
            "hikyaku_webhooks_off 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        ::metrics::with_local_recorder(&recorder, || show(None, at(100)));
        assert!(recorder.handle().render().contains("hikyaku_store_up 0"));
    }

    #[test]
    fn a_route_for_which_nothing_waits_is_shown_too() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let at = |second| Timestamp::from_second(second).unwrap();
        let organization = OrganizationId::parse("acme").unwrap();
        let waiting = RouteBacklog { effects: 5, failing: 2, oldest: Some(at(40)) };
        let routes = [((organization.clone(), "books".to_owned()), waiting)].into();
        let backlog = Backlog { routes, ..Backlog::default() };
        let named = ["books", "chat"].map(|route| (&organization, route));
        ::metrics::with_local_recorder(&recorder, || show_routes(&backlog, named.into_iter(), at(100)));
        let text = recorder.handle().render();
        for line in [
            "hikyaku_route_effects_waiting{route=\"books\",state=\"fresh\"} 3",
            "hikyaku_route_effects_waiting{route=\"books\",state=\"failing\"} 2",
            "hikyaku_route_effects_waiting{route=\"chat\",state=\"failing\"} 0",
            "hikyaku_route_oldest_seconds{route=\"books\"} 60",
            "hikyaku_route_oldest_seconds{route=\"chat\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
