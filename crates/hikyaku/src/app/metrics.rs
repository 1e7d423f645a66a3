//! The metrics' recorder. There is one per process, whatever number of programs a test starts in it.

use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use metrics::{Unit, describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

const BUILD_INFO: &str = "hikyaku_build_info";
const START_TIME: &str = "process_start_time_seconds";

/// The upper ends of the buckets that durations are counted in, in seconds: from a request on the same machine to the
/// longest an attempt may take.
const DURATIONS_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// The same for delays: from none to a day's outage.
const DELAYS_SECONDS: [f64; 12] = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0, 86_400.0];
/// The same for numbers of writes, up to the most that share a commit.
const WRITES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// How often recorded durations are sorted into their buckets; what waits for it takes memory.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The process's recorder, installed by whoever asks first.
pub(super) fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || {
        let recorder = builder().expect("no list of buckets is empty").build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed in this process; /metrics stays empty");
        }
        handle
    };
    RECORDER.get_or_init(install).clone()
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets(&DURATIONS_SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_delay_seconds".to_owned()), &DELAYS_SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_writes".to_owned()), &WRITES)
}

/// Shows which program this is and, by the wall clock, since when it runs.
pub(super) fn show_process(started_at: Timestamp) {
    describe_gauge!(BUILD_INFO, "Always 1; the version is the label");
    describe_gauge!(START_TIME, Unit::Seconds, "When the process started, in seconds since 1970");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    gauge!(START_TIME).set(started_at.as_millisecond() as f64 / 1000.0);
}

/// Keeps the recorder small, for ever.
pub(super) async fn upkeep(recorder: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        recorder.run_upkeep();
    }
}
