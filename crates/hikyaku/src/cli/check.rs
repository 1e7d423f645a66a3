//! `hikyaku check`: a report on any receiver.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hikyaku::check::{self, Act, Instruments, Language, Probe, Report, Settings, Subject, UsersCommand, UsersProbe};
use hikyaku::clock::{SharedClock, SystemClock};
use hikyaku::log;
use hikyaku::sandbox::Network;
use hikyaku::sandbox::faults::parse_length;
use hikyaku_core::signature::Secret;
use url::Url;

use super::failure::{FAILED, Failure, WrongUse, failed};
use super::{in_runtime, output, shutdown, target};

const EXAMPLES: &str = "Examples:
  hikyaku check http://127.0.0.1:3000/hook --secret s3cret
  hikyaku check http://127.0.0.1:3000/hook --secret s3cret --probe http://127.0.0.1:3000/orders.json
  hikyaku check http://127.0.0.1:3000/hook --secret s3cret --probe './orders-as-json' \\
    --restart-command './kill-and-start' --html report.html --junit report.xml

It writes to the receiver: use one that is there for tests.

Exit codes:
  0  no rule fails
  1  a rule fails, or the check was stopped
  2  the command line is wrong, the probe does not work, or a report cannot be written
  3  the receiver gave no answer

What is sent and how it is judged: docs/check.md";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum About {
    /// order.created and order.updated, by data.order_id
    Order,
    /// sale.created, by data.id
    Sale,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Tongue {
    En,
    Ja,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// The receiver
    #[arg(value_name = "URL", value_parser = target)]
    url: Url,
    /// Its secret
    #[arg(long, value_name = "SECRET", env = "HIKYAKU_CHECK_SECRET", hide_env_values = true)]
    secret: String,
    /// A command, or an http URL, that prints the receiver's keys and values as JSON
    #[arg(long, value_name = "COMMAND|URL")]
    probe: Option<String>,
    /// What the deliveries are about
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = About::Order)]
    subject: About,
    /// How long effects may take to be seen
    #[arg(long, value_name = "LENGTH", default_value = "10s", value_parser = parse_length)]
    settle: Duration,
    /// The receiver's second webhook, for C9
    #[arg(long, value_name = "URL", value_parser = target)]
    second_url: Option<Url>,
    /// Its secret [default: the first one's]
    #[arg(
        long,
        value_name = "SECRET",
        requires = "second_url",
        env = "HIKYAKU_CHECK_SECOND_SECRET",
        hide_env_values = true
    )]
    second_secret: Option<String>,
    /// Kills the receiver and starts it again, for T1
    #[arg(long, value_name = "COMMAND")]
    restart_command: Option<String>,
    /// Breaks what the receiver depends on, for C16
    #[arg(long, value_name = "COMMAND", requires = "mend_command")]
    break_command: Option<String>,
    /// Mends it
    #[arg(long, value_name = "COMMAND", requires = "break_command")]
    mend_command: Option<String>,
    /// How late a copy of an old delivery comes, for C7: 72m tells [default: at the end]
    #[arg(long, value_name = "LENGTH", value_parser = parse_length)]
    duplicate_after: Option<Duration>,
    /// Deliveries per second of the load
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// How long the load lasts; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=3600))]
    load_seconds: u32,
    /// Within what 99 of 100 answers must come
    #[arg(long, value_name = "LENGTH", default_value = "2s", value_parser = parse_length)]
    p99: Duration,
    /// The report's language
    #[arg(long, value_name = "LANGUAGE", value_enum, default_value_t = Tongue::En)]
    language: Tongue,
    /// The report as JSON
    #[arg(long)]
    json: bool,
    /// Writes it as a JUnit file too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Writes it as a page too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Check {
    pub(super) fn run(self) -> ExitCode {
        in_runtime(async move {
            match self.check().await {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(FAILED),
                Err(error) => failed(&*error),
            }
        })
    }

    async fn check(self) -> Result<bool, Failure> {
        let stop = shutdown()?;
        let clock: SharedClock = Arc::new(SystemClock::start());
        let tools = self.tools(clock)?;
        let shows = std::io::stderr().is_terminal();
        let tell = |what: &str| {
            if shows {
                log::tell(format_args!("checking {what}\n"));
            }
        };
        let report = check::run(self.settings(), tools, tell, stop).await?;
        self.write(&report)?;
        Ok(report.is_good())
    }

    fn tools(&self, clock: SharedClock) -> Result<Instruments, Failure> {
        let command = |text: &String| Arc::new(UsersCommand(text.clone())) as Arc<dyn Act>;
        let outage = self.break_command.as_ref().zip(self.mend_command.as_ref());
        Ok(Instruments {
            transport: Network::open(&clock)?.0,
            clock,
            probe: self.probe.clone().map(|probe| Arc::new(UsersProbe(probe)) as Arc<dyn Probe>),
            restart: self.restart_command.as_ref().map(command),
            outage: outage.map(|(breaks, mends)| (command(breaks), command(mends))),
        })
    }

    fn settings(&self) -> Settings {
        let secret = Secret::new(self.secret.as_str());
        let second_secret = self.second_secret.as_deref().map_or_else(|| secret.clone(), Secret::new);
        Settings {
            url: self.url.clone(),
            secret,
            second: self.second_url.clone().map(|url| (url, second_secret)),
            subject: match self.subject {
                About::Order => Subject::Order,
                About::Sale => Subject::Sale,
            },
            settle: self.settle,
            rate: self.rate,
            load_seconds: self.load_seconds,
            p99: self.p99,
            duplicate_after: self.duplicate_after,
        }
    }

    fn write(&self, report: &Report) -> Result<(), Failure> {
        let language = match self.language {
            Tongue::En => Language::En,
            Tongue::Ja => Language::Ja,
        };
        // Before anything is printed: a reader that has gone away must not cost the files.
        for (file, text) in [(&self.html, check::html as fn(&Report, Language) -> String), (&self.junit, check::junit)]
        {
            file.as_deref().map(|file| save(file, &text(report, language))).transpose()?;
        }
        if self.json {
            output::print(format_args!("{:#}\n", report.json(language)));
        } else {
            let stdout = std::io::stdout();
            let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            log::print(format_args!("{}", check::terminal(report, language, colour)))?;
        }
        Ok(())
    }
}

fn save(file: &Path, text: &str) -> Result<(), WrongUse> {
    fs::write(file, text).map_err(|error| WrongUse(format!("cannot write {}: {error}", file.display())))
}
