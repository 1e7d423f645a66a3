//! The metrics' recorder. There is one per process, whatever number of programs a test starts in it.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// The upper ends of the buckets that durations are counted in, in seconds: from a request on the same machine to the
/// longest an attempt may take.
const BUCKETS_SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// How often recorded durations are sorted into their buckets; what waits for it takes memory.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The process's recorder, installed by whoever asks first.
pub(super) fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || {
        let builder = PrometheusBuilder::new();
        // It fails only for an empty list.
        let builder = builder.set_buckets(&BUCKETS_SECONDS).expect("the list of buckets is not empty");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed in this process; /metrics stays empty");
        }
        handle
    };
    RECORDER.get_or_init(install).clone()
}

/// Keeps the recorder small, for ever.
pub(super) async fn upkeep(recorder: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        recorder.run_upkeep();
    }
}
