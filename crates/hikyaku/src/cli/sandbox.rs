//! `hikyaku sandbox`: plays the provider against any receiver.

use std::fs;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use data_encoding::HEXLOWER;
use hikyaku::clock::{self, SharedClock, SystemClock};
use hikyaku::log;
use hikyaku::sandbox::faults::{Plan, parse_length};
use hikyaku::sandbox::{self, Network, Receiver, Settings, view, world};
use hikyaku_core::event::EventPattern;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::failure::{Failure, WrongUse, failed};
use super::{in_runtime, shutdown, target};

/// Largest plan of faults that is read, in bytes.
const MAX_PLAN_BYTES: u64 = 1024 * 1024;
/// Random bytes of a secret that is made up.
const SECRET_BYTES: usize = 24;

const EXAMPLES: &str = "Examples:
  hikyaku sandbox --send-to http://127.0.0.1:3000/hook --secret s3cret
  hikyaku sandbox --send-to http://127.0.0.1:3000/hook --secret s3cret --time-scale 60 --faults all --seed 7
  hikyaku sandbox --send-to http://127.0.0.1:3000/hook --secret s3cret --faults plan.toml --json > sent.jsonl

What it sends and answers, and every fault there is: docs/sandbox.md";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Sandbox {
    /// A receiver that is registered from the start; can be given several times
    #[arg(long = "send-to", value_name = "URL", value_parser = target)]
    send_to: Vec<Url>,
    /// Signs what is sent to them [default: one is made up and shown]
    #[arg(long, value_name = "SECRET", env = "HIKYAKU_SANDBOX_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// Which events they get; can be given several times [default: all]
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    event: Vec<EventPattern>,
    /// Where the provider's API listens; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// How much faster than in the world time passes: 60 makes the 71 minutes of retries 71 seconds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: u32,
    /// What its clock shows at the start [default: the present time]
    #[arg(long, value_name = "TIME", value_parser = time)]
    start: Option<Timestamp>,
    /// Ends by itself after so long, by its own clock, as in 3h [default: never]
    #[arg(long = "for", value_name = "LENGTH", value_parser = parse_length)]
    length: Option<Duration>,
    /// The same number invents the same sales, orders and faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What goes wrong: a plan in TOML, or "all" for everything at once [default: nothing]
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Sales in an hour of its clock
    #[arg(long, value_name = "N", default_value_t = 120.0, value_parser = rate)]
    sales_per_hour: f64,
    /// Orders in an hour of its clock; each changes a few times
    #[arg(long, value_name = "N", default_value_t = 12.0, value_parser = rate)]
    orders_per_hour: f64,
    /// Who may log in at its API
    #[arg(long, value_name = "NAME", default_value = "sandbox")]
    user_name: String,
    /// With which password
    #[arg(
        long,
        value_name = "PASSWORD",
        default_value = "sandbox",
        env = "HIKYAKU_SANDBOX_PASSWORD",
        hide_env_values = true
    )]
    password: String,
    /// One JSON object per line, on a terminal too
    #[arg(long)]
    json: bool,
}

fn pattern(text: &str) -> Result<EventPattern, String> {
    EventPattern::parse(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Timestamp, String> {
    timestamp::parse(text).ok_or_else(|| "write it like 2026-11-30T09:00:00+09:00".to_owned())
}

/// The most that may happen in an hour: a thousand a second.
const MAX_PER_HOUR: f64 = 3_600_000.0;

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=MAX_PER_HOUR).contains(number));
    number.ok_or_else(|| format!("it must be a number between 0 and {MAX_PER_HOUR}"))
}

impl Sandbox {
    pub(super) fn run(self) -> ExitCode {
        let plan = match plan(self.faults.as_ref()) {
            Ok(plan) => plan,
            Err(error) => return failed(&WrongUse(error)),
        };
        in_runtime(async move {
            match self.play(plan).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&*error),
            }
        })
    }

    async fn play(self, plan: Plan) -> Result<(), Failure> {
        let shutdown = shutdown()?;
        let clock: SharedClock = Arc::new(SystemClock::start());
        let courier = Network::open(&clock)?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| {
            WrongUse(format!("cannot listen on {}: {error}; choose another with --listen", self.listen))
        })?;
        let (json, length, time_scale) = (self.json || !std::io::stdout().is_terminal(), self.length, self.time_scale);
        let settings = self.settings(plan, &clock);
        introduce(&settings, listener.local_addr()?);
        let sandbox = sandbox::Sandbox::new(settings, clock, Arc::new(courier));
        let (stop, told) = (CancellationToken::new(), sandbox.watch());
        let watching = tokio::spawn({
            let (stop, sandbox) = (stop.clone(), Arc::clone(&sandbox));
            async move {
                // Whoever reads no more wants no more.
                let watched = async {
                    if json {
                        view::lines(told).await
                    } else {
                        view::table(sandbox, told).await;
                        Ok(())
                    }
                };
                tokio::select! {
                    _ = watched => stop.cancel(),
                    () = stop.cancelled() => {}
                }
            }
        });
        let end = stop.clone();
        tokio::spawn(async move {
            let length = length.map_or(Duration::MAX, |length| length / time_scale);
            tokio::select! {
                () = shutdown => {}
                () = tokio::time::sleep(length) => {}
            }
            end.cancel();
        });
        sandbox.serve(listener, stop).await?;
        watching.await?;
        Ok(())
    }

    fn settings(self, plan: Plan, clock: &SharedClock) -> Settings {
        let made_up = || format!("rrsec_{}", HEXLOWER.encode(&clock::random::<SECRET_BYTES>()));
        let secret = Secret::new(self.secret.unwrap_or_else(made_up));
        let events = if self.event.is_empty() { vec![EventPattern::All] } else { self.event };
        let receiver = |url| Receiver { url, secret: secret.clone(), events: events.clone() };
        Settings {
            world: world::Settings {
                seed: self.seed,
                sales_per_hour: self.sales_per_hour,
                orders_per_hour: self.orders_per_hour,
                ..world::Settings::default()
            },
            plan,
            retries: RetrySchedule::default(),
            attempt_timeout: sandbox::ATTEMPT_TIMEOUT,
            time_scale: self.time_scale,
            start: self.start.unwrap_or_else(|| clock.now()),
            user_name: self.user_name,
            password: Secret::new(self.password),
            receivers: self.send_to.into_iter().map(receiver).collect(),
        }
    }
}

fn plan(file: Option<&PathBuf>) -> Result<Plan, String> {
    let Some(file) = file else { return Ok(Plan::default()) };
    if file.as_os_str() == "all" {
        return Ok(Plan::all());
    }
    let shown = file.display();
    let size = fs::metadata(file).map_err(|error| format!("cannot read the plan {shown}: {error}"))?.len();
    if size > MAX_PLAN_BYTES {
        return Err(format!("the plan {shown} has {size} bytes; at most {MAX_PLAN_BYTES} are read"));
    }
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read the plan {shown}: {error}"))?;
    Plan::parse(&text).map_err(|error| format!("the plan {shown}: {error}"))
}

/// Says how to talk to it, on standard error, so that standard output holds what happens and nothing else.
fn introduce(settings: &Settings, address: SocketAddr) {
    log::tell(format_args!(
        "The provider's API: http://{address}  organization {}, user {}\n",
        settings.world.organization, settings.user_name
    ));
    for receiver in &settings.receivers {
        log::tell(format_args!("A webhook to {}  signed with {}\n", receiver.url, receiver.secret.reveal()));
    }
    if settings.receivers.is_empty() {
        log::tell(format_args!(
            "No webhook is registered yet: --send-to URL, or POST http://{address}/{}/webhook/create\n",
            settings.world.organization
        ));
    }
}
